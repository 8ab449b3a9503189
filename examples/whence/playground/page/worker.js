// The engine's thread. The page (look/viewer/source.js) puts two functions in front of this text: whence.js as
// `load_engine(Module)`, and `inflated(text)`.
// Questions are answered in order; a question that comes before the engine is ready waits.
let engine = null, began = null;

async function begin(text, files) {
  const wasmBinary = new Uint8Array(await inflated(text));
  await new Promise((resolve, reject) => {
    const quiet = { print() {}, printErr() {} };
    load_engine(engine = { wasmBinary, noInitialRun: true, onRuntimeInitialized: resolve, onAbort: reject, ...quiet });
  });
  for (const [name, packed] of Object.entries(files)) {
    engine.FS.mkdirTree(name.replace(/\/?[^/]*$/, ""));
    engine.FS.writeFile(name, new Uint8Array(await inflated(packed)));
  }
}

// The block of numbers that an answer refers to is copied at once: the next question may move it.
function answer_of(question) {
  const answer = JSON.parse(engine.ccall("whence_ask", "string", ["string"], [JSON.stringify(question)]));
  if (!answer.page) return { answer };
  const at = engine._whence_numbers(), size = engine._whence_numbers_size();
  return { answer, numbers: engine.HEAPU8.slice(at, at + size).buffer };
}

self.onmessage = async ({ data: { module, files, id, question } }) => {
  try {
    if (module) return void await (began = begin(module, files));
    await began;
    const start = performance.now(), { answer, numbers } = answer_of(question);
    const message = { id, answer, numbers, milliseconds: performance.now() - start };
    postMessage(message, numbers ? [numbers] : []);
  } catch (problem) {
    postMessage({ dead: String(problem?.message ?? problem) });
  }
};
