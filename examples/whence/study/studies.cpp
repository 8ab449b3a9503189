// The studies by name.
#include "examples/whence/study/task_study.h"

namespace whence {

std::vector<std::string> study_names() {
  std::vector<std::string> names{text_study_name};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) names.push_back(info.name);
  return names;
}

std::unique_ptr<Study> find_study(const std::string& name) {
  if (name == text_study_name) return make_text_study();
  return std::make_unique<TaskStudy>(tasks::find_task(name));
}

}  // namespace whence
