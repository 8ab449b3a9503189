// Answers the questions of standard input by the WebAssembly module, like `whence playground --answer`. With --command it
// runs a command of the module:
//   node tests/examples/playground/node.js build/playground < questions.jsonl
//   node tests/examples/playground/node.js build/playground --command conformance
"use strict";
const { readFileSync } = require("fs");
const [folder, option, ...words] = process.argv.slice(2);
delete globalThis.fetch;  // by which this emscripten would take node for a browser
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
