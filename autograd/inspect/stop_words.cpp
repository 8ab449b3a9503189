#include "autograd/inspect/stop_words.h"

#include <array>

namespace whence {
namespace {

struct Words {
  const char *name, *meaning, *way_out;
};

// The order is that of Stop.
constexpr std::array<Words, stop_count> stop_words{{{"lives", "the gradient passes", ""},
    {"saturated", "the function is flat there: a gate that is all but open or shut",
        "smaller queries and keys, or a penalty on what is saturated"},
    {"leaking", "below 0 a leaky unit passes a hundredth", "a first distribution that leaves the unit above 0"},
    {"table flat", "both rows that are interpolated between are equal, so moving between them changes nothing",
        "the first steps: the table gets its own gradient, and the rows part"},
    {"whole position", "at a whole position floor and ceiling are one row; what is returned there is 0",
        "any move of a gate; it is a set of measure 0 unless gates are exactly 0 or 1"},
    {"clamped", "beyond the bound (p_max, the end of a table) a move changes nothing",
        "a larger p_max, or gates that open less"},
    {"dead unit", "below 0 the unit passes nothing", "a leaky unit, or another first distribution"},
    {"rounded weight", "the softmax's weight rounds to 0, or to 1", "smaller logits"},
    {"no target", "no token that reads this number has a loss", "more targets"},
    {"row not read", "no position or token reads this row",
        "longer texts, or positions that reach it; else the row is of no use"},
    {"zero derivative", "the derivative of the op is 0 there, or what it is multiplied with", ""},
    {"cancels", "its terms add up to 0: it moves a whole row, and softmax ignores what is constant along a row",
        "nothing, and nothing is lost: the loss does not change with it either"},
    {"only key", "it is its row's only key, and has all the weight", "nothing: the row has no other key"},
    {"masked", "the mask hides it: a later key, padding, or what the scheme blanks",
        "nothing: it is no part of the model"},
    {"frozen", "this parameter is not trained", "training it"},
    {"constant", "it is made of constants, so that no gradient is taken; the loss may depend on it all the same",
        "a parameter in it"},
    {"no path", "the loss does not depend on it", "nothing short of another model"}}};

const Words& words_of(Stop stop) { return stop_words[static_cast<std::size_t>(stop)]; }

}  // namespace

const char* to_string(Stop stop) { return words_of(stop).name; }
const char* meaning_of(Stop stop) { return words_of(stop).meaning; }
const char* way_out_of(Stop stop) { return words_of(stop).way_out; }

}  // namespace whence
