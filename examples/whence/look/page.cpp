#include "examples/whence/look/page.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "autograd/inspect/capture.h"
#include "autograd/recording.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/patch.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

std::string data_element(const char* attributes, const Json& data) {
  return to_text("<script type=\"application/json\" ", attributes, ">",
      report::safe_in_script(data.line(Json::Utf8::escaped)), "</script>\n");
}

std::string document_of(const Subject& subject, double loss, const Json& data, const std::vector<Json>& besides,
    const PageNumbers& numbers, bool served) {
  Table facts({"fact", ""});
  for (const auto& [name, value] : subject.facts) facts.row({name, value});
  facts.row({"loss", digits(loss, 6)});
  const std::string body =
      "<aside><details><summary>Facts about this pass</summary>\n<div class=\"scroll\">" + facts.html() +
      "</div>\n</details>\n</aside>\n"
      "<noscript><p>A script inside this file draws the maps, and scripts are switched off here.</p></noscript>\n"
      "<main id=\"look\"></main>\n";
  std::string scripts = data_element("id=\"look-data\"", data);
  for (const Json& beside : besides) scripts += data_element("class=\"look-beside\"", beside);
  scripts += to_text("<script type=\"application/octet-stream\" id=\"look-numbers\">", numbers.text(), "</script>\n");
  scripts += to_text(
      "<script type=\"application/json\" id=\"lessons\">", report::safe_in_script(report::lessons), "</script>\n");
  if (served) scripts += "<script type=\"text/plain\" id=\"served\"></script>\n";
  scripts += report::viewer_script(report::look_scripts);
  return report::document(
      subject.title, report::style_sheet, body, scripts, served ? "; connect-src 'self'; form-action 'self'" : "");
}

// Returns the quantities of a planned pass over a few tokens: shapes without numbers.
std::vector<Quantity> planned_quantities(const TransformerOptions& options, DType dtype, index_t tokens) {
  const NoGrad values_only;
  const PlannedModules planned;
  Transformer model(options);
  model.to(dtype);
  Capture capture("*");
  (void)model(Tensor::zeros({1, tokens}, DType::i64));
  capture.stop();
  return quantities_of(capture, parse_schemes(model.scheme()));
}

// Returns the bytes of value, gradient and cause of each entry, for a text that is `longer` times as long.
double page_bytes(const std::vector<Quantity>& quantities, double longer) {
  double bytes = 0;
  for (const Quantity& quantity : quantities) {
    if (!quantity.probe || quantity.layer < 0) continue;
    const Axes axes(quantity);
    double entries = static_cast<double>(quantity.value.numel());
    for (const char of_tokens : {'i', 'j', 't'})
      if (axes.has(of_tokens)) entries *= longer;
    bytes += entries * (2 * static_cast<double>(size_of(quantity.value.dtype())) + 1);
  }
  return bytes;
}

// Returns the runs of --beside. They must read the same text, because they share maps and questions.
std::vector<Subject> subjects_beside(const Subject& subject, const PageRequest& request) {
  std::vector<Subject> all;
  for (const std::string& run : path_list_of(request.beside)) {
    SubjectOptions other = request.subject;
    other.run = run, other.step = 0;
    all.push_back(subject_of(other));
    if (all.back().texts != subject.texts)
      throw DoesNotFit("--beside: ", run, " reads other tokens; a run on the same ones required (same task and ",
          "length, or same tokeniser)");
  }
  return all;
}

// Returns a row of the comparison: what `train` recorded of the run, and its answers to the tokens of the page.
Json rival_of(
    const std::string& run, const Subject& subject, const std::vector<std::optional<Prediction>>& predictions) {
  Json::List results, answers;
  std::error_code none;
  if (const std::string file = run + "/results.jsonl"; std::filesystem::exists(file, none))
    for_each_json_line(read_file(file), file, [&](const Json& result) {
      if (result.has("token_error_percent"))
        results.push_back(Json{{"set", result.text("test_set")}, {"percent", result.number("token_error_percent")}});
    });
  for (const auto& each : predictions) answers.push_back(each ? prediction_json(*each) : Json());
  return {{"run", run}, {"scheme", subject.model->scheme()}, {"results", results}, {"predictions", answers}};
}

// Returns the steps of --checkpoints: the first, the last, and evenly spaced ones between. 0: before the first step.
std::vector<std::int64_t> chosen_steps(const PageRequest& request) {
  if (request.checkpoints == 0) return {};
  std::vector<std::int64_t> all;
  if (begins_at_random(request.subject.run)) all.push_back(0);
  for (const auto& [step, folder] : checkpoints_of(request.subject.run)) all.push_back(step);
  if (all.empty() || all.back() == 0)
    throw FileError("--checkpoints: ", request.subject.run, " has none; a run with saved checkpoints required");
  const auto most = static_cast<std::size_t>(request.checkpoints);
  if (all.size() < 2)
    throw InputError("--checkpoints: ", request.subject.run, " has one, of step ", all[0],
        "; two or more required; train with a smaller --save-every, and --keep-checkpoints 0 to keep all");
  if (all.size() <= most) return all;
  std::vector<std::int64_t> steps;
  for (std::size_t k = 0; k < most; ++k)
    steps.push_back(all[most == 1 ? all.size() - 1 : k * (all.size() - 1) / (most - 1)]);
  return steps;
}

// Makes the maps of patches. Each cell is a pass, so that at most 48 are made without a request.
Json patches_json(const Inspection& inspection, const PageRequest& request) {
  if (inspection.subject().given) return {};
  const Asked asked = asked_of(Forward(inspection.subject()));
  const PatchSource from = PatchSource::named(request.from, request.subject);
  const auto other = patch_source(inspection.subject(), request.subject, from, asked.token);
  if (!other) return {};
  const Forward source(*other);
  return Patching(inspection, source).maps(from.given() ? 4096 : 48);
}

std::size_t pages_beside(const PageRequest& request) {
  return request.checkpoints > 0 ? chosen_steps(request).size() : request.beside.empty() ? 0 : 1;
}

// Throws before anything is computed if the page does not fit.
void require_fits(const Subject& subject, const PageRequest& request) {
  require_small_page(subject, pages_beside(request));
  std::cerr << require_memory(subject) << '\n';
}

}  // namespace

void require_small_page(const Subject& subject, std::size_t others) {
  const index_t tokens = subject.tokens.numel(), few = std::min<index_t>(tokens, 16);
  const std::vector<Quantity> quantities = planned_quantities(subject.model->options(), subject.dtype(), few);
  const auto bytes_at = [&](index_t length) {
    return page_bytes(quantities, static_cast<double>(length) / static_cast<double>(few));
  };
  const double runs = static_cast<double>(1 + others), most = static_cast<double>(most_bytes);
  const double bytes = bytes_at(tokens);
  if (bytes * runs <= most) return;
  index_t shorter = tokens;
  while (shorter > 1 && bytes_at(shorter) * runs > most) --shorter;
  const double fitting = std::floor(most / bytes) - 1;  // runs in addition to this one
  throw InputError("a page of ", tokens, " tokens", others > 0 ? to_text(" and of ", others, " more runs") : "",
      " would hold ", std::ceil(bytes * runs / (1 << 20)), " MiB of numbers; at most ", most_bytes >> 20,
      " required; --length ", shorter, " fits", others > 1 && fitting >= 1 ? to_text(", or ", fitting, " runs") : "",
      ", and --causes, --paths and --explain take any length");
}

std::string page_of(const Inspection& inspection, const PageRequest& request, bool served) {
  const Subject& subject = inspection.subject();
  require_small_page(subject, pages_beside(request));
  PageNumbers numbers;
  std::vector<Json> beside;  // data of whole passes over the same tokens
  Json::List rivals;         // their results and answers
  // One inspection at a time, to save memory.
  const std::vector<Subject> others = subjects_beside(subject, request);
  if (!others.empty() && request.checkpoints == 0) beside.push_back(json_of(Inspection(others[0], false), numbers));
  if (!others.empty()) rivals.push_back(rival_of(request.subject.run, subject, inspection.predictions()));
  for (std::size_t k = 0; k < others.size(); ++k) {
    const NoGrad values_only;
    rivals.push_back(
        rival_of(path_list_of(request.beside)[k], others[k], others[k].predictions(others[k].pass().logits)));
  }
  for (const std::int64_t step : chosen_steps(request)) {
    SubjectOptions then = request.subject;
    then.step = step, then.untrained = step == 0;
    const Subject checkpoint = subject_of(then);
    beside.push_back(json_of_pass(Inspection(checkpoint, false), numbers));
  }
  Json data = json_of(inspection, numbers);
  data.add("patches", patches_json(inspection, request)).add("rivals", rivals);
  return document_of(subject, inspection.loss(), data, beside, numbers, served);
}

std::filesystem::path file_to_write(const PageRequest& request, const std::string& ending) {
  if (!request.out.empty()) return request.out;
  return is_folder(request.subject.run) ? std::filesystem::path(request.subject.run) / ending
                                        : std::filesystem::path(ending);
}

std::string title_line(const Subject& subject, double loss) {
  std::string line = to_text(subject.title, ", loss ", loss);
  for (const auto& [name, value] : subject.facts) line += to_text("; ", name, ' ', value);
  return one_line(line);
}

std::string html_of(const Subject& subject, const PageRequest& request, bool served) {
  require_fits(subject, request);
  return page_of(Inspection(subject), request, served);
}

void write_page(const Subject& subject, const PageRequest& request) {
  const std::filesystem::path page = file_to_write(request, "look.html");
  ensure_output_file(page);
  require_fits(subject, request);
  const Inspection inspection(subject);
  std::cout << title_line(subject, inspection.loss()) << '\n';
  const std::string html = page_of(inspection, request);
  if (request.numbers) {
    const std::string file = std::filesystem::path(page).replace_extension(".safetensors");
    ensure_output_file(file);
    write_safetensors(file, pass_of(subject));
    std::cout << "written: " << one_line(file) << std::endl;
  }
  write_file(page.string(), html);
  std::cout << "written: " << one_line(page.string()) << std::endl;
}

}  // namespace whence::look
