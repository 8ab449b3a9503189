// Decoding by a graph on the GPU, or on the emulated one: the rows are those of a forward pass over all tokens.
#include "nn/decoding.h"

#include "examples/whence/verify/device_check.h"
#include "tensor/device/device_runtime.h"
#include "tests/support/device.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr index_t vocabulary = 11;

std::unique_ptr<Transformer> model_of(const std::string& scheme, index_t capacity) {
  TransformerOptions options = small(scheme);
  options.vocabulary = vocabulary, options.length = capacity, options.dim = 32, options.heads = 4, options.kv_heads = 2;
  auto model = std::make_unique<Transformer>(options);
  model->initialise(3);
  std::uint64_t drawn = 0;  // also for tables that begin with zeros
  for (const Module::Parameter& each : model->parameters())
    if (each.tensor.rank() > 1 || each.path.find("position") != std::string::npos)
      raw::add_into(
          Tensor::normal(each.tensor.shape(), 0, 0.2, Stream(++drawn, "moved"), each.tensor.dtype()), each.tensor);
  return model;
}

Tensor text_of(index_t batch, index_t length) { return random_tokens(batch, length, vocabulary); }

Tensor rows(const Tensor& x, index_t begin, index_t end) { return raw::contiguous(raw::slice(x, 1, begin, end)); }

double apart(const Tensor& x, const Tensor& y) { return distance(x.to_vector(), y.to_vector()); }

std::uint64_t launches() { return runtime_of(Device::cuda(0)).traffic().launches; }

const std::vector<std::string> in_a_graph{"none", "absolute", "sinusoidal", "rope", "rope(layout=interleaved, width=4)",
    "xpos", "alibi", "kerple", "t5", "sandwich", "window(alibi, n=90)", "cope(p_max=40)",
    "cope(p_max=8, gates=separate_keys)", "cope(p_max=20) + rope", "forgetting", "alibi + sink", "gated_output",
    "selective_rope", "shifted(rope, by=3)", "shaw(clip=4)", "relative", "transformer_xl", "yarn(original=4)",
    "yarn(dynamic=yes, original=12)", "rope(scaling=longrope, original=5, long_factor=4)"};

}  // namespace

TEST_CASE("cuda decoding: tokens by a graph have the rows of the whole pass, over several parts of the keys") {
  constexpr index_t capacity = 140, prompt = 125;
  const NoGrad values_only;
  for (const char* scheme : {"absolute + alibi", "rope", "cope(p_max=40)", "cope(p_max=30, gates=values)", "forgetting",
           "shaw(clip=100) + alibi"}) {
    CAPTURE(std::string(scheme));
    const auto model = model_of(scheme, capacity);
    const Tensor text = text_of(2, capacity), whole = (*model)(text);
    model->to(Device::cuda(0));
    Decoding decoding(*model, capacity);
    CHECK(apart(decoding(rows(text, 0, prompt)), rows(whole, 0, prompt)) < 2e-4);
    std::vector<Tensor> kept;
    for (index_t n = prompt; n < prompt + 6; ++n) {
      const std::uint64_t before = launches();
      kept.push_back(decoding(rows(text, n, n + 1)));
      if (n > prompt + 1) CHECK(launches() - before == 2);  // the graph, and the copy of its logits
    }
    CHECK(decoding.no_graph() == "");
    for (index_t n = prompt; n < prompt + 6; ++n)
      CHECK(apart(kept[static_cast<std::size_t>(n - prompt)], rows(whole, n, n + 1)) < 2e-4);
    CHECK(apart(decoding(rows(text, prompt + 6, prompt + 9)), rows(whole, prompt + 6, prompt + 9)) < 2e-4);
    for (index_t n = prompt + 9; n < capacity; ++n)  // the graph continues after a chunk, to the last place
      CHECK(apart(decoding(rows(text, n, n + 1)), rows(whole, n, n + 1)) < 2e-4);
  }
}

TEST_CASE("cuda decoding: behind padding, by one graph") {
  const auto check = std::ranges::find(device_checks(), "decoded", &ConformanceCheck::name);
  for (const std::string& scheme : in_a_graph) {
    const ConformanceCell cell = conform(scheme, 1, {*check}).cells.at(0);
    CHECK_MESSAGE(
        (cell.mark == ConformanceCell::Mark::passed && cell.note.starts_with("by one graph")), scheme, ": ", cell.note);
  }
}

TEST_CASE("cuda decoding: speeds that follow the run, by graphs between the lengths at which they change") {
  constexpr index_t capacity = 20;
  const NoGrad values_only;
  for (const auto& [scheme, reason] : {std::pair{"rope(scaling=longrope, original=9, long_factor=4:5:6:7)", ""},
           std::pair{"rope(scaling=dynamic, original=12)", "changes all rows at each length"},
           std::pair{"yarn(dynamic=yes, original=12)", "changes all rows at each length"}}) {
    CAPTURE(std::string(scheme));
    const auto model = model_of(scheme, capacity);
    const Tensor text = text_of(2, capacity);
    std::vector<Tensor> whole;  // of the run so far, without a cache
    for (index_t n = 0; n < capacity; ++n) whole.push_back(rows((*model)(rows(text, 0, n + 1)), n, n + 1));
    model->to(Device::cuda(0));
    Decoding decoding(*model, capacity);
    index_t replayed = 0;
    for (index_t n = 0; n < capacity; ++n) {
      const std::uint64_t before = launches();
      CHECK(apart(decoding(rows(text, n, n + 1)), whole[static_cast<std::size_t>(n)]) < 2e-4);
      replayed += launches() - before == 2;
    }
    CHECK(replayed == (*reason ? 10 : 7 + 8));  // the first two of a graph are launched one by one
    CHECK(decoding.no_graph().find(reason) != std::string::npos);
    CHECK(decoding.no_graph().empty() == !*reason);
  }
}

TEST_CASE("cuda decoding: a head mix in f16") {
  constexpr index_t capacity = 140, prompt = 125;
  const NoGrad values_only;
  for (const char* scheme : {"dape(kerple)", "cdape(kerple)", "cdape(alibi)", "dape(fire(init_length=3))"}) {
    CAPTURE(std::string(scheme));
    const auto model = model_of(scheme, capacity);
    model->to(DType::f16), model->to(Device::cuda(0));
    const Tensor text = text_of(2, capacity), whole = raw::to_device((*model)(text), Device::cpu());
    Decoding decoding(*model, capacity, {0, 3});
    const auto check = [&](index_t begin, index_t end) {
      const Tensor made = raw::slice(decoding(rows(text, begin, end)), 0, 0, 1);
      CHECK(apart(made, raw::slice(rows(whole, begin, end), 0, 0, 1)) < 2e-2);
    };
    check(0, prompt);
    for (index_t n = prompt; n < prompt + 5; ++n) check(n, n + 1);
    CHECK(decoding.no_graph() == "");
  }
}

TEST_CASE("cuda decoding: what no graph decodes goes on as before, and says why") {
  const NoGrad values_only;
  const auto reason = [](const std::string& scheme, DType dtype, Device where) {
    const auto model = model_of(scheme, 12);
    model->to(dtype);
    const Tensor text = text_of(1, 12), whole = (*model)(text);
    model->to(where);
    Decoding decoding(*model, 12);
    for (index_t n = 0; n < 12; ++n) CHECK(apart(decoding(rows(text, n, n + 1)), rows(whole, n, n + 1)) < 2e-4);
    return decoding.no_graph();
  };
  const Device gpu = Device::cuda(0);
  CHECK(reason("alibi", DType::f32, Device::cpu()) == "the cpu given; a GPU required");
  for (const auto& [scheme, why] : std::vector<std::pair<std::string, std::string>>{{"fire", "no program on a GPU"},
           {"stick_breaking", "no program on a GPU"}, {"hard_attention", "in tiles required"},
           {"rope + ssmax", "no program on a GPU"}, {"dape(alibi)", "f32 given to a head mix"}}) {
    CAPTURE(scheme);
    const std::string found = reason(scheme, DType::f32, gpu);
    CAPTURE(found);
    CHECK(has(found, why));
  }
  CHECK(reason("none", DType::f64, gpu).find("in tiles required") != std::string::npos);
}
