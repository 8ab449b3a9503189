// precision: prints where 16 and 32 bits no longer tell two positions, biases or gates apart, as a table or as JSON.
#include <cmath>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "examples/whence/verify/precision_report.h"
#include "tensor/error.h"

namespace whence {
namespace {

const std::vector<DType> dtypes{DType::f16, DType::bf16, DType::f32};

std::string number(double value) {
  if (std::isnan(value)) return "-";
  if (value == std::floor(value)) return exact(value);
  return std::fabs(value) < 1e-3 || std::fabs(value) >= 1e6 ? to_text(value) : fixed(value, 4);
}

std::string page_of(const std::vector<PrecisionRow>& rows) {
  Json::List page;
  for (const PrecisionRow& row : rows) {
    Json entry{{"key", row.key}, {"question", row.question}};
    for (std::size_t k = 0; k < dtypes.size(); ++k) entry.add(to_string(dtypes[k]), row.answers[k]);
    page.push_back(entry);
  }
  return Json(page).page() + '\n';
}

std::string table_of(const std::vector<PrecisionRow>& rows) {
  Table table({"question", "f16", "bf16", "f32"});
  for (const PrecisionRow& row : rows)
    table.row({row.question, number(row.answers[0]), number(row.answers[1]), number(row.answers[2])});
  return table.text();
}

int run(CommandLine& line) {
  PrecisionOptions options;
  bool json = false;
  line.heading("Options")
      .integer("heads", &options.heads, Range<int>{1, 64},
          {"heads of ALiBi and KERPLE; KERPLE shows the first and the last"})
      .number("logit", &options.logit, Range<double>{-65504, 65504}, {"the number that a bias is added to"})
      .integer("furthest", &options.furthest, Range<std::int64_t>{1, std::int64_t{1} << 40},
          {"position that is looked at; - in the table: none up to it"})
      .flag("json", &json, {"print JSON instead of a table"});
  line.example("whence precision --heads 4", "half a minute, most of it for f32")
      .example("whence precision --furthest 100000", "a few seconds");
  if (line.shows_page()) return 0;
  const std::vector<PrecisionRow> rows = precision_report(dtypes, options);
  std::cout << (json ? page_of(rows) : table_of(rows));
  return 0;
}

const RegisterCommand registered{
    {"precision", Purpose::learn, "where f16, bf16 and f32 lose positions, gates and biases", run}};

}  // namespace
}  // namespace whence
