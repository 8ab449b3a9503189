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

TEST_CASE("the nearest name, if one is near") {
  const std::vector<std::string> names{"absolute", "alibi", "cope", "none", "rope", "sinusoidal"};
  CHECK(nearest("cope", names) == "cope");
  CHECK(nearest("CoPE", names) == "cope");  // case does not count
  CHECK(nearest("copee", names) == "cope");
  CHECK(nearest("ocpe", names) == "cope");
  CHECK(nearest("alibbi", names) == "alibi");
  CHECK(nearest("sinusiodal", names) == "sinusoidal");
  CHECK(nearest("transformer", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest("rope", {}).empty());
  CHECK(nearest(std::string(1000, 'r'), names).empty());
}

TEST_CASE("the beginning of a name means that name") {
  CHECK(nearest("sinus", {"cope", "sinusoidal"}) == "sinusoidal");
  CHECK(nearest("Abs", {"alibi", "absolute"}) == "absolute");
  CHECK(nearest("lay", {"lag", "layers"}) == "layers");  // rather than a misprint of a short one
}

TEST_CASE("a word that shares nothing with a name is not near to it, however short") {
  CHECK(nearest("q", {"1"}).empty());
  CHECK(nearest("2", {"1", "head"}).empty());
  CHECK(nearest("hed", {"1", "head"}) == "head");
}

TEST_CASE("of equally near names the first, as it is written") {
  CHECK(nearest("nope", {"none", "rope"}) == "none");
  CHECK(nearest("nope", {"Rope", "none"}) == "Rope");
}
