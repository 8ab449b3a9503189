// Samples of autograd/ops/views.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

using AxisList = std::vector<int>;

std::vector<BadInput> view_refusals() {
  const Tensor x = draw::zeros(2, 3);
  return {refusal("reshape: x is [2,3], shape [4,2] given; a shape of 6 elements is required, at most one extent -1",
              reshape, x, Shape{4, 2}),
      refusal("permute: x is [2,3], axis 0 given twice; each axis is required once", permute, x, AxisList{0, 0}),
      refusal("permute: x is [2,3], 1 axes given; each of its 2 axes is required once", permute, x, AxisList{0}),
      refusal("slice: x is [2,3], axis 1 from 2 to 5 step 1 given; 0 <= begin <= end <= 3 and step >= 1 are required",
          slice, x, 1, 2, 5, 1),
      refusal("select: x is [2,3], index 3 of axis 1 given; an index in [0, 3) is required", select, x, 1, 3),
      refusal("expand: x is [2,3], shape [2,4] given; extents that are equal, or 1 in x, are required, aligned at the "
              "last axis",
          expand, x, Shape{2, 4})};
}

Samples adjoints_of_slice() {
  const auto of = [](const Shape& x, int axis, index_t begin, index_t end, index_t step) {
    return adjoint([=](const Tensor& at, const std::vector<Tensor>&) { return slice(at, axis, begin, end, step); }, x);
  };
  return {{"inner axis", {draw::normal({3, 3})}, of({3, 7}, 1, 2, 5, 1)},
      {"step 2", {draw::normal({2, 2})}, of({5, 2}, 0, 1, 5, 2)},
      {"nothing", {draw::normal({0})}, of({4}, 0, 2, 2, 1)}};
}

// contiguous() runs no op on what is contiguous.
Tensor of_transposed(const Tensor& x, Site site) { return contiguous(transpose(x), site); }

const Checked checked[] = {
    {{"reshape",
         drawn<Shape>(reshape, {{"merge", {2, 3, 4}, {{6, 4}}}, {"split, one extent worked out", {12}, {{3, -1, 2}}},
                                   {"to 0-d", {1, 1}, Shape{}}, {"empty", {3, 0}, {{0, 7}}}}),
         view_refusals},
        Accepts::any_shapes},
    {{"permute",
         drawn<AxisList>(permute, {{"cycle of three", {2, 3, 4}, AxisList{1, 2, 0}},
                                      {"[b t h d] to [b h t d]", {2, 3, 4, 5}, AxisList{0, 2, 1, 3}},
                                      {"negative axes", {3, 3, 3}, AxisList{-1, 0, -2}}, {"0-d", {}, AxisList{}}})},
        Accepts::any_shapes},
    {{"transpose",
         drawn<int, int>(transpose, {{"last two", {2, 3, 4}, {-2, -1}}, {"outer and inner", {2, 3, 4}, {0, 2}},
                                        {"an axis with itself", {2, 3}, {1, 1}}})},
        Accepts::any_shapes},
    {{"unslice", adjoints_of_slice}},
    {{"slice", drawn<int, index_t, index_t, index_t>(
                   slice, {{"middle axis", {2, 4, 3}, {1, 1, 3, 1}}, {"step 3", {2, 8}, {-1, 0, 8, 3}},
                              {"everything", {3}, {0, 0, 3, 1}}, {"nothing", {3, 2}, {0, 2, 2, 1}}})},
        Accepts::any_shapes},
    {{"select", drawn<int, index_t>(select,
                    {{"first axis", {3, 4}, {0, 1}}, {"last axis", {2, 3, 4}, {-1, 2}}, {"to 0-d", {5}, {0, 4}}})},
        Accepts::any_shapes},
    {{"unsqueeze", drawn<int>(unsqueeze, {{"in front", {2, 3}, 0}, {"at the end", {2, 3}, -1}, {"of 0-d", {}, 0}})},
        Accepts::any_shapes},
    {{"expand", drawn<Shape>(expand, {{"inner and leading axis", {2, 1}, Shape{4, 2, 3}}, {"0-d", {}, Shape{2, 2}},
                                         {"to nothing", {1, 3}, Shape{0, 3}}})},
        Accepts::any_shapes},
    {{"contiguous", drawn<>(of_transposed, {{"rows", {3, 5}, {}}})}, Accepts::any_call}};

}  // namespace
}  // namespace whence
