#include "examples/whence/look/write_page.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>

#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

// Returns a file name next to the page: look.html -> look.causes.csv
std::string companion_file(const std::filesystem::path& page, const std::string& ending) {
  return (page.parent_path() / (page.stem().string() + ending)).string();
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
  if (const std::string file = run + "/results.jsonl"; std::filesystem::exists(file, none)) {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      const Json result = Json::read(line, file);
      if (!result.has("token_error_percent")) continue;
      results.push_back(Json{{"set", result.text("test_set")}, {"percent", result.number("token_error_percent")}});
    }
  }
  for (const auto& each : predictions) answers.push_back(each ? prediction_json(*each) : Json());
  return {{"run", run}, {"scheme", subject.model->scheme()}, {"results", results}, {"predictions", answers}};
}

template <class Contents> void write(const std::string& file, const Contents& contents) {
  ensure_output_file(file);
  if constexpr (std::is_same_v<Contents, SafetensorsFile>)
    write_safetensors(file, contents);
  else
    write_file(file, contents);
  std::cout << "written: " << one_line(file) << std::endl;
}

// Returns the steps of --checkpoints: the first, the last, and evenly spaced ones between. 0: before the first step.
std::vector<std::int64_t> chosen_steps(const PageRequest& request) {
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
  const Asked asked = asked_of(Forward(inspection.subject()), request.token, request.answer);
  const auto other = patch_source(inspection.subject(), request.subject, request.patched_from, asked.token);
  if (!other) return {};
  const Forward source(*other);
  const Patching patching(inspection, source, request.token, request.answer);
  return patching.maps(request.patched_from.given() ? 4096 : 48);
}

// Returns the page of an inspection of `subject`, whose strongest edits it prints.
std::string page_about(const Inspection& inspection, const PageRequest& request, bool served) {
  const Subject& subject = inspection.subject();
  Besides besides{strongest_edits(inspection, static_cast<std::size_t>(request.edits))};
  besides.served = served;
  // One inspection at a time, to save memory.
  const std::vector<Subject> others = subjects_beside(subject, request);
  if (!others.empty() && request.checkpoints == 0)
    besides.beside.push_back(json_of(Inspection(others[0], false), besides.numbers));
  if (!others.empty()) besides.rivals.push_back(rival_of(request.subject.run, subject, inspection.predictions()));
  for (std::size_t k = 0; k < others.size(); ++k) {
    const NoGrad values_only;
    besides.rivals.push_back(
        rival_of(path_list_of(request.beside)[k], others[k], others[k].predictions(others[k].pass().logits)));
  }
  if (request.checkpoints > 0)
    for (const std::int64_t step : chosen_steps(request)) {
      SubjectOptions then = request.subject;
      then.step = step, then.untrained = step == 0;
      const Subject checkpoint = subject_of(then);
      besides.beside.push_back(json_of_pass(Inspection(checkpoint, false), besides.numbers));
    }
  besides.patches = patches_json(inspection, request);
  if (!besides.edits.empty()) std::cout << edits_table(besides.edits).text();
  return page_of(inspection, std::move(besides));
}

// Throws before anything is computed if the page does not fit.
void require_fits(const Subject& subject, const PageRequest& request) {
  require_small_page(subject, request.checkpoints > 0 ? chosen_steps(request).size() : request.beside.empty() ? 0 : 1);
  std::cerr << require_memory(subject) << '\n';
}

}  // namespace

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
  return page_about(Inspection(subject), request, served);
}

void write_page(const Subject& subject, const PageRequest& request) {
  const std::filesystem::path page = file_to_write(request, "look.html");
  ensure_output_file(page);
  require_fits(subject, request);
  const Inspection inspection(subject);
  std::cout << title_line(subject, inspection.loss()) << '\n';
  const std::string html = page_about(inspection, request, false);
  if (request.numbers) {
    write(companion_file(page, ".safetensors"), tensors_of(inspection));
    write(companion_file(page, ".causes.csv"), causes_of(inspection).csv());
    write(companion_file(page, ".paths.csv"), paths_table(inspection).csv());
  }
  write(page.string(), html);
}

}  // namespace whence::look
