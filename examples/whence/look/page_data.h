// The page's data as JSON. examples/whence/look/viewer/ reads it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/story.h"

namespace whence::look {

// All numbers of a page in one block of bytes, where equal arrays are stored once. The JSON refers to an array as
// {"at": BYTE, "bytes": COUNT}. Arrays are little-endian f32 or f64, a byte for each cause, or u32 differences to the
// number before.
class PageNumbers {
 public:
  template <class T> Json add(const std::vector<T>& array) {
    return place_of({reinterpret_cast<const std::uint8_t*>(array.data()), array.size() * sizeof(T)});
  }
  Json add(const Tensor& x);  // null if x is undefined
  [[nodiscard]] const std::vector<std::uint8_t>& block() const { return block_; }
  [[nodiscard]] std::string text() const;  // the block deflated, as base64

 private:
  Json place_of(std::span<const std::uint8_t> array);

  std::vector<std::uint8_t> block_;
  std::multimap<std::size_t, std::pair<std::size_t, std::size_t>> places_;  // by the hash of the array
};

[[nodiscard]] Json json_of(const EditOutcome& outcome);
[[nodiscard]] Json json_of(const Inspection& inspection, const Turned& turned);
[[nodiscard]] Json prediction_json(const Prediction& prediction);
[[nodiscard]] Json palettes_json();  // three palettes of 256 colours, "440154..."
// Leaves out the story if the inspection is of an `edited` pass, because its edits were run on the pass without edits.
[[nodiscard]] Json json_of(const Inspection& inspection, PageNumbers& numbers, bool links = true, bool edited = false);
// Returns the data of a pass without links, graph and edits.
[[nodiscard]] Json json_of_pass(const Inspection& inspection, PageNumbers& numbers);

}  // namespace whence::look
