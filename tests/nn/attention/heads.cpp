// Query heads that share keys and values. A column of the conformance matrix compares every scheme and executor with copied keys.
#include "nn/attention/heads.h"

#include "nn/attention/plan.h"
#include "nn/decoding.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("dropout of the pattern draws for each query head, whoever computes it") {
  const BareAttention none("none", {24, 6, 9, 0, 2});
  AttendInputs inputs = random_inputs(none, 2, 9, 3);
  inputs.dropout = PatternDropout{0.3, Stream(1, "pattern", 2)};
  const Tensor wanted = attend(inputs, {}, Executor::reference);
  for (const Executor executor : {Executor::strips, Executor::tiled})
    CHECK(distance(attend(inputs, {}, executor), wanted) < 1e-14);
}

TEST_CASE("decoding keeps the key heads alone, and has the logits of the whole run") {
  for (const char* scheme :
      {"none", "rope", "alibi", "cope(p_max=3, gates=separate_keys)", "shaw", "dape(kerple)", "path", "carope"}) {
    CAPTURE(scheme);
    TransformerOptions options = small(scheme);
    options.dim = 16, options.heads = 4, options.kv_heads = 2;
    const auto model = random_decoder(options);
    const Tensor tokens = random_tokens(2, 7, options.vocabulary);
    Decoding decoding(*model, 8);
    CHECK(decoding.cache_bytes() == 0);
    std::vector<Tensor> rows{decoding(slice(tokens, 1, 0, 3))};
    for (index_t t = 3; t < 7; ++t) rows.push_back(decoding(slice(tokens, 1, t, t + 1)));
    CHECK(distance(concat_along(1, rows), (*model)(tokens)) < 1e-12);
    CHECK(decoding.cache_bytes() == 2 * options.layers * 2 * 2 * 8 * 4 * 8);  // k, v; batch, key heads, capacity, dims
  }
}
