// Answers the questions of standard input by the module of WebAssembly, as `whence playground --answer` does, and with
// --command runs a command of it:
//   node tests/examples/playground/node.js build/playground < questions.jsonl
//   node tests/examples/playground/node.js build/playground --command conformance
"use strict";
const { readFileSync } = require("fs");
const [folder, option, ...words] = process.argv.slice(2);
delete globalThis.fetch;  // with which this emscripten takes node for a browser
const ask = (question) => Module.ccall("whence_ask", "string", ["string"], [question]);
function answer_all() {
  for (const question of readFileSync(0, "utf8").split("\n").filter(Boolean)) console.log(ask(question));
}
globalThis.Module = {
  noInitialRun: true, wasmBinary: readFileSync(`${folder}/playground.wasm`),
  onRuntimeInitialized: () => option === "--command" ? Module.callMain(words) : answer_all(),
};
Object.assign(globalThis, { require, __dirname: folder });
require("vm").runInThisContext(readFileSync(`${folder}/playground.js`, "utf8"));
