// Masks and distances are made late, once, from O(T) numbers; read pair by pair they agree with the positions.
#include "autograd/inspect/capture.h"
#include "nn/attention/distances.h"
#include "nn/attention/plan.h"
#include "tensor/device/allocator.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

AttendContext context_of(const Sequence& sequence) {
  AttendContext at;
  static_cast<Sequence&>(at) = sequence;
  return at;
}

// Returns the context that the first scheme of `text` that adds a bias gets.
AttendContext seen_by(const std::string& text, const Sequence& sequence) {
  const auto scheme = parse_schemes(text)[0].make({8, 2, 9});
  const Stages stages = Stages::of({scheme.get()});
  return stages.biases.at(0).at(context_of(sequence));
}

Sequence moved(Sequence sequence, double by) {
  sequence.positions.query = sequence.positions.query + by, sequence.positions.key = sequence.positions.key + by;
  return sequence;
}

double number(const Tensor& positions, index_t b, index_t t) {
  return positions.rank() == 2 ? positions.at({positions.size(0) == 1 ? 0 : b, t}) : positions.at({t});
}

double distance_by_hand(const AttendContext& at, index_t b, index_t i, index_t j) {
  const Positions& p = at.positions;
  double steps = number(p.undivided_query.defined() ? p.undivided_query : p.query, b, i) -
                 number(p.undivided_key.defined() ? p.undivided_key : p.key, b, j);
  if (p.distances.defined()) steps = std::copysign(p.distances.at({static_cast<index_t>(std::fabs(steps))}), steps);
  if (p.divisor != 1) steps /= p.divisor;
  return at.causal ? std::max(steps, 0.0) : steps;
}

template <class Pair> void for_all_pairs(index_t batch, const Sequence& at, const Pair& pair) {
  for (index_t b = 0; b < batch; ++b)
    for (index_t i = 0; i < at.rows; ++i)
      for (index_t j = 0; j < at.keys; ++j) pair(b, i, j);
}
index_t batch_of(const AttendContext& at) { return at.positions.key.rank() == 2 ? at.positions.key.size(0) : 1; }

// Checks the distance of each pair, to the last bit, and that the distances ascend.
void check_distances(const AttendContext& at) {
  const Distances distances = distances_of(at);
  const Tensor pairs = distance_of_pairs(at), read = distances.read(reshape(distances.values, {1, -1})),
               index = distances.index_of_pairs(at);
  for_all_pairs(batch_of(at), at, [&](index_t b, index_t i, index_t j) {
    const double expected = distance_by_hand(at, b, i, j);
    CHECK(read.at({b, 0, i, j}) == expected);
    CHECK(distances.values.at({static_cast<index_t>(index.at({b, 0, i, j}))}) == expected);
    CHECK(pairs.at({b, 0, i, j}) == expected);
  });
  for (index_t n = 1; n < distances.values.numel(); ++n) CHECK(distances.values.at({n - 1}) < distances.values.at({n}));
}

struct Expected {
  index_t lowest, count;
  bool diagonal;
};

void check_steps(const AttendContext& at, const Expected& expected) {
  const auto found = whole_distances(at);
  REQUIRE(found);
  CHECK(found->steps.lowest == expected.lowest);
  CHECK(found->values.numel() == expected.count);
  CHECK(found->diagonal == expected.diagonal);
  CHECK(found->steps.query.size(1) == at.rows);
  CHECK(found->steps.key.size(1) == at.keys);
  for_all_pairs(batch_of(at), at, [&](index_t b, index_t i, index_t j) {
    const double steps = number(found->steps.query, b, i) - number(found->steps.key, b, j);
    const index_t row = static_cast<index_t>(steps) - found->steps.lowest;
    CHECK(found->values.at({at.causal ? std::max<index_t>(row, 0) : row}) == distance_by_hand(at, b, i, j));
  });
  check_distances(at);
}

void check_mask(const Sequence& sequence) {
  const Tensor mask = sequence.mask();
  REQUIRE(mask.defined());
  const index_t batch = mask.size(0), heads = mask.rank() == 4 ? mask.size(1) : 1;
  const Tensor all = raw::expand(mask, {batch, heads, sequence.rows, sequence.keys});
  const Shape whole = all.shape();
  const Tensor present = sequence.present.defined() ? raw::expand(sequence.present, whole) : Tensor(),
               given = sequence.given_mask.defined() ? raw::expand(sequence.given_mask, whole) : Tensor();
  for_all_pairs(batch, sequence, [&](index_t b, index_t i, index_t j) {
    for (index_t h = 0; h < heads; ++h) {
      const bool allowed = (!sequence.causal || j <= sequence.first_row + i) &&
                           (!present.defined() || present.at({b, h, i, j}) != 0) &&
                           (!given.defined() || given.at({b, h, i, j}) != 0);
      CHECK((all.at({b, h, i, j}) != 0) == allowed);
    }
  });
}

std::size_t peak_of(const std::function<void()>& work) {
  Allocator& allocator = memory_of(Device::cpu());
  allocator.reset_peak();
  const std::size_t held = allocator.statistics().live;
  work();
  return allocator.statistics().peak - held;
}

}  // namespace

TEST_CASE("distance steps: runs, causal and not, moved as a whole, padded on both sides") {
  const Expected causal{0, 7, true}, both_ways{-6, 13, true};
  check_steps(context_of(Sequence::run(7)), causal);
  check_steps(context_of(Sequence::run(7, false)), both_ways);
  check_steps(context_of(Sequence::run(1)), {0, 1, true});
  check_steps(context_of(moved(Sequence::run(7), 1e9)), causal);
  check_steps(seen_by("shifted(kerple, by=17)", Sequence::run(7)), causal);
  for (const index_t left : {3, 0}) {
    check_steps(context_of(Sequence::padded(present_but(7, left, 3 - left))), causal);
    check_steps(context_of(Sequence::padded(present_but(7, left, 3 - left), false)), both_ways);
  }
}

TEST_CASE("distance steps: decoding, and a block of rows") {
  check_steps(context_of(Sequence::continued(5, 1, 9)), {0, 6, true});
  check_steps(context_of(Sequence::continued(4, 3, 9, present_but(7, 2, 0))), {0, 7, true});
  AttendContext block = context_of(Sequence::run(9));
  block.rows = 3, block.keys = 7, block.first_row = 4;
  block.positions.query = slice(block.positions.query, 0, 4, 7);
  block.positions.key = slice(block.positions.key, 0, 0, 7);
  check_steps(block, {0, 7, true});
  block.first_row = 3;
  CHECK(!whole_distances(block)->diagonal);
}

TEST_CASE("distance steps: stretched, drawn and uneven positions") {
  check_steps(seen_by("interpolated(kerple, factor=3)", Sequence::run(7)), {0, 7, true});
  check_steps(seen_by("interpolated(kerple, factor=3)", Sequence::run(7, false)), {-6, 13, true});
  const AttendContext distances = seen_by("randomised(alibi, length=64)", Sequence::run(7));  // draws distances
  REQUIRE(distances.positions.distances.defined());
  check_steps(distances, {0, 7, true});
  check_steps(seen_by("randomised(alibi, length=64)", Sequence::padded(present_but(7, 3, 0), false)), {-6, 13, true});

  const AttendContext positions = seen_by("randomised(kerple, length=12)", Sequence::run(7));
  REQUIRE(!positions.positions.distances.defined());
  const auto reach = static_cast<index_t>(positions.positions.query.at({6}) - positions.positions.query.at({0}));
  REQUIRE(reach < 12);
  check_steps(positions, {0, reach + 1, reach == 6});

  Sequence uneven = Sequence::run(5, false);
  uneven.positions.query = uneven.positions.key = Tensor::of({0, 1, 2, 6, 7}, {5}, DType::f64);
  check_steps(context_of(uneven), {-7, 15, false});
  uneven.causal = true;
  check_steps(context_of(uneven), {0, 8, false});
}

TEST_CASE("distance steps: positions between whole numbers, and far apart, are read pair by pair") {
  Sequence between = Sequence::run(5);
  between.positions.query = between.positions.key = Tensor::of({0, 0.5, 1.25, 3, 4}, {5}, DType::f64);
  CHECK(!whole_distances(context_of(between)));
  check_distances(context_of(between));
  Sequence far = Sequence::run(3, false);
  far.positions.query = far.positions.key = Tensor::of({0, 1, 1e12}, {3}, DType::f64);
  CHECK(!whole_distances(context_of(far)));
  check_distances(context_of(far));
  far.positions.query = far.positions.key = Tensor::of({0, 1, 1000}, {3}, DType::f64);
  check_steps(context_of(far), {-1000, 2001, false});
}

TEST_CASE("a mask follows writes to the sequence's tensors, and a sequence keeps what its caller gave") {
  const Tensor batch = Tensor::of({1, 1, 1, 0}, {1, 4}, DType::boolean);
  const Sequence sequence = Sequence::padded(batch);
  const Tensor mask = sequence.mask();
  raw::copy_into(Tensor::zeros({1, 4}, DType::boolean), batch);  // the next batch
  CHECK(sequence.mask().identity() == mask.identity());
  raw::copy_into(Tensor::of({1, 1, 0, 0}, {1, 1, 1, 4}, DType::boolean), sequence.present);
  CHECK(sequence.mask().at({0, 0, 3, 2}) == 0);
  CHECK(mask.at({0, 0, 3, 2}) == 1);
}

TEST_CASE("steps of pairs are computed once for a sequence, and again for other facts") {
  const auto steps_of = [](const AttendContext& at) { return distances_of(at).steps.query.identity(); };
  const AttendContext at = context_of(Sequence::run(6));
  AttendContext copy = at;
  const auto first = steps_of(at);
  CHECK(steps_of(copy) == first);
  const AttendContext other = context_of(Sequence::run(6));
  CHECK(steps_of(other) != first);
  copy.positions.query = copy.positions.query + 3.0, copy.positions.key = copy.positions.key + 3.0;
  CHECK(steps_of(copy) != first);
  copy.positions = at.positions;
  CHECK(steps_of(copy) == first);
  copy.causal = false;
  check_distances(copy);
  copy.own_cache();
  copy.causal = true;
  CHECK(steps_of(copy) != first);
}

TEST_CASE("a table by distance is made once for all layers and steps, and anew for other numbers; few are kept") {
  Sequence sequence = Sequence::run(6);
  int made = 0;
  const auto table = [&](const char* function, double last, DType dtype = DType::f32) {
    const Tensor distances = Tensor::of({0, 1, last}, {3}, DType::f64);
    return sequence.table_once(function, distances, dtype, [&] { return ++made, Tensor::full({1, 3}, made, dtype); });
  };
  const Tensor first = table("f 1", 2);
  const std::shared_ptr<TableCache> of_model = sequence.tables;
  sequence.own_cache();  // a part of the run
  CHECK(table("f 1", 2).identity() == first.identity());
  sequence = Sequence::run(6);
  CHECK(table("f 1", 2).identity() != first.identity());
  sequence.tables = of_model;  // the next step
  CHECK(table("f 1", 2).identity() == first.identity());
  CHECK(made == 2);
  for (const Tensor& other : {table("f 2", 2), table("f 1", 3), table("f 1", 2, DType::f64)})
    CHECK(other.identity() != first.identity());
  sequence.causal = false;
  CHECK(table("f 1", 2).identity() != first.identity());
  sequence.causal = true;
  CHECK(made == 6);
  CHECK(table("f 1", 2).identity() != first.identity());  // the fifth: four are kept
  CHECK(made == 7);
}

TEST_CASE("a mask is that of the facts: causal, padding, decoding, given by the caller") {
  check_mask(Sequence::run(5));
  CHECK(!Sequence::run(5, false).mask().defined());
  for (const index_t left : {0, 2})
    for (const bool causal : {false, true}) check_mask(Sequence::padded(present_but(6, left, 2 - left), causal));
  check_mask(Sequence::continued(4, 3, 9));
  check_mask(Sequence::continued(4, 3, 9, present_but(7, 2, 0)));
  for (const Shape& shape : {Shape{5}, Shape{5, 1}, Shape{1, 2, 5, 5}}) {
    const Tensor given = raw::cast(raw::cast(normal(shape, 3) + 1.0, DType::i32), DType::boolean);
    for (Sequence sequence : {Sequence::run(5), Sequence::run(5, false), Sequence::padded(present_but(5, 0, 2))}) {
      sequence.given_mask = given;
      check_mask(sequence);
    }
  }
}

TEST_CASE("facts that contradict each other are refused") {
  CHECK(has(error_text([] { (void)Sequence::padded(Tensor::ones({2, 3})); }), "is f32 [2,3]"));
  const Tensor present = Tensor::of({0, 0, 0, 0, 0, 0, 1, 0, 1, 0}, {2, 5}, DType::boolean);
  for (const auto& call : {std::function<void()>([&] { (void)Sequence::padded(present); }),
           std::function<void()>([&] { (void)Sequence::continued(2, 3, 9, present); })})
    CHECK(has(error_text(call), "token 2 of sequence 1"));
  CHECK(has(error_text([] { (void)Sequence::continued(4, 3, 6); }), "4 tokens and 3"));
}

TEST_CASE("a mask is made once for all copies of a sequence, and anew for other facts") {
  const Sequence sequence = Sequence::run(6), copy = sequence.on(Device::cpu());
  const Tensor mask = sequence.mask();
  CHECK(copy.mask().identity() == mask.identity());
  Sequence other = sequence;
  other.first_row = 2;
  check_mask(other);
  other.first_row = 0;
  CHECK(other.mask().identity() == mask.identity());
  other.own_cache();
  CHECK(other.mask().identity() != mask.identity());
}

TEST_CASE("no tensor of pairs is made without a request") {
  const index_t length = 32768;
  CHECK(peak_of([&] { (void)whole_distances(context_of(Sequence::run(length))); }) < std::size_t(100 * length));
  CHECK(peak_of([&] { (void)Sequence::continued(length - 1, 1, length).mask(); }) < std::size_t(100 * length));
  // Blocks make masks and distances of blocks: less than the bools of all pairs, at any time.
  const index_t shorter = 2048;
  const AttendPlan strips(Executor::strips, 16);
  const NoGrad values_only;
  for (const std::string text : {"none", "kerple", "cope(p_max=4)"}) {
    CAPTURE(text);
    const Bare scheme(text, 1, 2);
    const AttendInputs inputs = random_inputs(shorter, Sequence::run(shorter), 1, 1, 2);
    CHECK(peak_of([&] { (void)scheme.output(inputs, strips); }) < std::size_t(shorter * shorter));
  }
}
