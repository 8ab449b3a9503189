// What must hold of JSON from a file before the library reads it.
#pragma once

#include <string>
#include <string_view>

namespace whence {

// FileError "PLACE: ..." when the text holds a NUL, which the library takes for its end, so that what follows would go
// unread, or nests deeper than 64, which is copied, printed and freed by recursion.
void require_json_text(const std::string& place, std::string_view text);

}  // namespace whence
