// The thread in which the engine lives. The page puts whence.js in front of this as the function `load_engine(Module)`.
// Questions are answered in the order in which they come; those that come before the engine is ready wait.
let engine = null, began = null;

async function inflated(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; ++k) bytes[k] = letters.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function begin(text, files) {
  const wasmBinary = await inflated(text);
  await new Promise((resolve, reject) => {
    const quiet = { print() {}, printErr() {} };
    load_engine(engine = { wasmBinary, noInitialRun: true, onRuntimeInitialized: resolve, onAbort: reject, ...quiet });
  });
  for (const [name, packed] of Object.entries(files)) {
    engine.FS.mkdirTree(name.replace(/\/?[^/]*$/, ""));
    engine.FS.writeFile(name, await inflated(packed));
  }
}

// The block of the last look is copied at once: the next question may move it.
function answer_of(question) {
  const answer = JSON.parse(engine.ccall("whence_ask", "string", ["string"], [JSON.stringify(question)]));
  if (question.ask !== "look" || answer.error) return { answer };
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
