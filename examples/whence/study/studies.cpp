// The studies by name, and `train`'s command lines that name one.
#include <algorithm>
#include <filesystem>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/model_plan.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/study/train_request.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Refuses a word that names neither a study nor an existing file or folder.
[[noreturn]] void refuse_missing(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  std::vector<std::string> known = study_names();
  for (const std::string& file : names_in(folder.empty() ? "." : folder.string()))
    known.push_back((folder / file).string());
  const auto meant = nearest_name(name, known);
  throw InputError("task '", name, "': no task of that name, and no such file or folder; one of them required; ",
      meant ? to_text("did you mean '", *meant, "'?") : "whence tasks lists the tasks");
}

// Returns the study that reads a file or folder: questions for JSON lines with answers, text for anything else.
std::string study_that_reads(const std::string& path, const std::vector<std::string>& words) {
  const auto first = first_json_line(first_line_of(path));
  if (first && first->has("answer")) return "jsonl";
  const TypedOptions typed = options_in(words);
  const std::string field = typed.contains("field") ? typed.at("field") : language::CorpusOptions().field;
  return is_jsonl(path) && !(first && first->has(field)) ? "jsonl" : language::text_study;
}

// Returns the study of this name, or of a file or folder.
std::string name_in(std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with("-")) return {};
  const std::string name = words[0];
  words.erase(words.begin());
  if (std::ranges::count(study_names(), name) > 0) return name;
  std::error_code none;
  if (!std::filesystem::exists(name, none)) refuse_missing(name);
  const std::string study = study_that_reads(name, words);
  words.insert(words.begin(), {"--data", name});
  return study;
}

void require_fitting(const TrainRequest& request) {
  TransformerOptions model = request.model();
  model.layers = 1;  // one layer is enough to see whether sizes and scheme go together
  (void)planned_parameters(model);
}

}  // namespace

std::vector<std::string> study_names() {
  std::vector<std::string> names{language::text_study};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) names.push_back(info.name);
  return names;
}

std::unique_ptr<StudyOptions> find_study(const std::string& name) {
  if (name == language::text_study) return text_study_options();
  return std::make_unique<TaskStudyOptions>(tasks::find_task(name));
}

std::unique_ptr<TrainRequest> read_train_request(std::vector<std::string> words) {
  std::string name = name_in(words);
  const auto from = record_to_repeat(options_in(words));
  if (!from) return std::make_unique<TrainRequest>(find_study(name), words);
  const RunRecord record = read_run_record(*from);
  if (!name.empty() && name != record.subject)
    throw InputError(*from, ": is a run of ", record.subject, ", ", name, " given; the same required");
  try {
    require_fitting(TrainRequest(find_study(record.subject), {}, record));
  } catch (const FileError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const InputError& unfit) { throw FileError(*from, ": ", unfit.what()); }
  return std::make_unique<TrainRequest>(find_study(record.subject), words, record);
}

void require_data_of_record(const TrainRequest& request, const Study& study, const std::vector<std::string>& words) {
  const TypedOptions typed = options_in(words);
  const auto from = record_to_repeat(typed);
  const bool as_it_was =
      std::ranges::all_of(typed, [](const auto& option) { return never_recorded.contains(option.first); });
  if (!from || !as_it_was) return;
  const RunRecord record = read_run_record(*from);
  const TrainingOptions& training = request.settings().training;
  const std::string now = study.data(training.seed);
  if (now == record.data) return;
  const std::string problem = to_text("the data have SHA-256 ", now, ", those of the recorded run ", record.data,
      "; the same data required; version ", record.version, " made them, this is ", WHENCE_VERSION);
  if (training.resume) throw DoesNotFit("--resume: ", problem);
  throw FileError("--from: ", problem);
}

}  // namespace whence
