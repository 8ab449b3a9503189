// "Did you mean".
#include "tensor/error.h"

#include <doctest/doctest.h>

using whence::edit_distance;
using whence::nearest_name;

namespace {

// The nearest name, or "" if none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  return nearest_name(name, candidates).value_or("");
}

}  // namespace

TEST_CASE("edits between two names") {
  CHECK(edit_distance("rope", "rope") == 0);
  CHECK(edit_distance("rope", "ropes") == 1);
  CHECK(edit_distance("rope", "rpe") == 1);
  CHECK(edit_distance("rope", "cope") == 1);
  CHECK(edit_distance("rope", "orpe") == 1);  // a swap of neighbours is one edit
  CHECK(edit_distance("", "rope") == 4);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);  // swapped letters are not edited again
}

TEST_CASE("the nearest name, if one is near: case does not count, a beginning is the name, the first of equals wins") {
  using Names = std::vector<std::string>;
  const Names names{"absolute", "alibi", "cope", "none", "rope", "sinusoidal"};
  struct Row {
    std::string given, nearest;
    Names among;
  };
  for (const Row& row : std::vector<Row>{{"cope", "cope", names}, {"CoPE", "cope", names}, {"copee", "cope", names},
           {"ocpe", "cope", names}, {"alibbi", "alibi", names}, {"sinusiodal", "sinusoidal", names},
           {"transformer", "", names}, {"", "", names}, {"rope", "", {}}, {std::string(1000, 'r'), "", names},
           {"sinus", "sinusoidal", {"cope", "sinusoidal"}}, {"Abs", "absolute", {"alibi", "absolute"}},
           {"lay", "layers", {"lag", "layers"}},  // rather than a misprint of a short one
           {"q", "", {"1"}}, {"2", "", {"1", "head"}}, {"hed", "head", {"1", "head"}},
           {"nope", "none", {"none", "rope"}}, {"nope", "Rope", {"Rope", "none"}}})
    CHECK_MESSAGE(nearest(row.given, row.among) == row.nearest, row.given);
}
