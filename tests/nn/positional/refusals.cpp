// Schemes whose options would have no effect or no meaning, or that do not go together: refused, by what was given.
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/scheme_texts.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("schemes: what would have no effect or no meaning is refused by what was given") {
  struct Row {
    std::string text, part;
    index_t heads = 2, head_dim = 4, length = 12;
  };
  const Row rows[] = {{"dape(cope)", "transforms scores"}, {"dape(absolute)", "embeds tokens"},
      {"dape(dape(alibi))", "maps scores"}, {"cdape(hard_attention)", "the softmax"}, {"cdape(shaw)", "the values"},
      {"dape(none, form=concat)", ": form given"}, {"dape(rope, form=f_of_bias)", ": form given"},
      {"cdape(alibi, kernel=2)", "kernel 2 with"}, {"cdape(alibi, kernel=1, pad=left)", ": pad given"},
      {"cdape(alibi, kernel=1, remask=yes)", ": remask given"}, {"cdape(alibi, kernel=1, tril=no)", ": tril given"},
      {"cdape(alibi, pad=left, tril=no)", ": tril given"}, {"cdape(alibi, pad=left, remask=yes)", ": remask given"},
      {"cdape(alibi, tril=no, remask=yes)", ": remask given"}, {"cope(z_from=rotated)", "z_from=rotated given"},
      {"cope_mlp(z_from=rotated)", "z_from=rotated given"},
      {"cope(table=shared, gates=separate_keys)", "gates=separate_keys given"}, {"cope_mlp(p_max=4)", "'p_max' is"},
      {"cope_mlp(output=head, z_from=unrotated)", ": z_from given"}, {"cope_alibi(first=0.25)", ": first given"},
      {"cope_alibi(slopes=learned, first=1)", ": first given"}, {"cope_alibi(p_max=4)", "'p_max' is"},
      {"interpolated(rope(keep=0), factor=2)", "no positions"}, {"rope + qk_norm", "qk_norm: learned"},
      {"xpos + qk_norm(weight=none)", "behind xpos"}, {"cope(z_from=rotated) + xpos", "with xpos"},
      {"dape(kerple(table=shared))", "table given inside"}, {"rope(width=2, scaling=dynamic)", ": scaling given"},
      {"rope + qk_norm(weight=none) + yarn", "rope: given"}, {"path + rope", "path: given"},
      {"mta(keys=4)", "mta: keys 4"}, {"mta(heads=3)", "mta: heads 3"}, {"mta(mix_scores=yes)", "one head", 1},
      {"mta + hard_attention", "the softmax"}, {"forgetting(gates=pairs, bias=1)", ": bias given"},
      {"forgetting(width=4)", ": width given"}, {"ssmax + dape(kerple, width=3)", "ssmax: another"},
      {"t5(max_distance=16, table=per_layer)", "max_distance 16"}, {"sandwich(dim=7)", "dim 7"},
      {"transformer_xl", "dim 9", 3, 3}, {"transformer_xl + rope", "transformer_xl: given"}, {"rope + yarn", "rotates"},
      {"yarn(dynamic=yes, factor=2)", ": factor given"}, {"yarn(beta_fast=1, beta_slow=2)", "beta_slow 2"},
      {"yarn(width=3)", "width 3"}, {"yarn", "yarn", 2, 4, 0}, {"relative(table=per_layer)", "relative", 2, 4, 0},
      {"interpolated(shaw, factor=2)", "whole positions"}, {"interpolated(relative, factor=2)", "whole positions"},
      {"rope(keep=0.2, scaling=ntk)", ": scaling given"}, {"rope(factor=2)", ": factor given"},
      {"rope(scaling=ntk, original=8)", ": original given"},
      {"rope(scaling=ntk, low_freq_factor=2)", ": low_freq_factor given"},
      {"rope(scaling=llama3, long_factor=2)", ": long_factor given"},
      {"rope(scaling=llama3, low_freq_factor=4)", "low_freq_factor 4"},
      {"rope(scaling=longrope, short_factor=1:2:3)", "of 3 numbers"},
      {"rope(scaling=longrope, original=1)", "original 1"}, {"rope", "width 3", 4, 3},
      {"rope(width=6)", "width 6", 4, 4}, {"sinusoidal", "dim 3", 1, 3}};
  for (const Row& row : rows) {
    const std::string said = error_text<InputError>([&] { (void)Bare(row.text, row.heads, row.head_dim, row.length); });
    CHECK_MESSAGE(has(said, row.part), row.text, ": ", said);
  }
}

TEST_CASE("schemes: those that claim it read the layer's input, and no others") {
  int reading = 0;
  for (const std::string& text : scheme_texts(16)) {
    std::unique_ptr<BareAttention> scheme;
    const std::string refused = error_text<InputError>([&] {
      scheme = std::make_unique<BareAttention>(text, SchemeSizes{8, 2, 16});
    });
    if (!refused.empty() || scheme->embeds()) continue;
    AttendInputs inputs = random_inputs(*scheme, 1, 4, 1);
    inputs.x = {};
    const std::string said = error_text([&] { (void)scheme->run(inputs, Executor::reference); });
    CHECK_MESSAGE(has(said, "Claims::reads_x") == scheme->claims().reads_x, text, ": ", said);
    reading += scheme->claims().reads_x;
  }
  CHECK(reading > 20);
}

TEST_CASE("schemes: inputs that do not fit are refused by what was given") {
  AttendInputs bare = random_inputs(4), between = bare, by_head = bare;
  const Shape long_run{1, 1, 8192, 4};
  const AttendInputs far{.x = {},
      .query = normal(long_run, 1, DType::f32),
      .key = normal(long_run, 2, DType::f32),
      .value = normal(long_run, 3, DType::f32),
      .sequence = Sequence::run(8192)};
  bare.x = {};
  between.sequence.positions.query = between.sequence.positions.query * 0.5;
  by_head.sequence.given_mask = raw::copy(raw::expand(bare.sequence.mask(), {1, 2, 4, 4}));
  const auto check = [](const Bare& scheme, const AttendInputs& inputs, const char* part, bool of_input = false) {
    const auto run = [&] { (void)scheme.output(inputs, {Executor::strips, 4}); };
    const std::string said = of_input ? error_text<InputError>(run) : error_text(run);
    CHECK_MESSAGE(has(said, part), scheme.text(), ": ", said);
  };
  for (const char* text : {"shaw", "relative"}) check(Bare(text), between, "whole distances");
  check(Bare("relative"), random_inputs(4, Sequence::run(4, false)), "use shaw");
  check(Bare("cdape(alibi)"), by_head, "heads, [1|b 1", true);
  check(Bare("xpos(scale_base=64)", 1, 4), far, "8191 apart", true);
  const auto leaking = random_decoder(small("cdape(alibi, width=3, tril=no)"));
  Decoding decoding(*leaking, 12);
  CHECK(has(error_text([&] { (void)decoding(random_tokens(1, 3, 5)); }), "tril=no in"));
}
