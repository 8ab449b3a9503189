// Checkpoints: bitwise round trips and resumes; damage, interrupted saves and a second process.
#include "nn/io/checkpoint.h"

#include <csignal>

#include "nn/io/safetensors.h"
#include "nn/layers/layers.h"
#include "tests/support/notes.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

namespace fs = std::filesystem;

struct Regression final : Module {
  MLP mlp;
  Linear head{3, 1};
  explicit Regression(index_t hidden = 8) : mlp({.dim = 3, .hidden = hidden}) {
    child("mlp", mlp);
    child("head", head);
    initialise(11);
  }
};

// Takes steps first..last on batches that depend on the step alone.
void train(const Regression& model, Optimizer& adam, index_t first, index_t last) {
  for (index_t step = first; step <= last; ++step) {
    const Tensor x = Tensor::normal({5, 3}, 0, 1, Stream(1, "x", static_cast<std::uint64_t>(step)));
    const Tensor target = raw::reduce(Reduction::sum, x, {1}, true);
    adam.zero_gradients();
    backward(mean(square(model.head(model.mlp(x)) - target)));
    adam.step(0.01, clip_by_global_norm(adam.parameters(), 1).scale);
  }
}

std::vector<double> numbers(const Module& module, const Optimizer& adam) {
  std::vector<double> all{static_cast<double>(adam.steps())};
  const auto append = [&](const Tensor& x) {
    for (const double value : x.to_vector()) all.push_back(value);
  };
  for (const auto& parameter : module.parameters()) append(parameter.tensor);
  for (const auto& moments : adam.moments())
    for (const Tensor& moment : {moments.first, moments.second})
      if (moment.defined()) append(moment);
  return all;
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

std::string rewrite(const fs::path& path, const std::function<void(SafetensorsFile&)>& change) {
  SafetensorsFile file = read_safetensors(path.string());
  change(file);
  return write_safetensors(path.string(), file);
}

// Makes the file like one of another program.
void remove_seal(const std::string& path) {
  std::string bytes = text_of(path);
  bytes.replace(bytes.find(seal_key), 11, "unknown.key");
  std::ofstream(path, std::ios::binary) << bytes;
}

// Runs in a forked process. Tensors this small are saved without threads, which do not survive a fork.
[[noreturn]] void save_until_killed(const std::string& root, const Regression& model, const Adam& adam) {
  try {
    const CheckpointFolder folder(root);
    while (true) folder.save(model.parameters(), adam, {adam.steps(), 11, {}});
  } catch (...) { _exit(1); }
}

// A run of three steps with its checkpoint, and loads of damaged copies that must change nothing.
struct Saved {
  Scratch scratch;
  Regression model;
  Adam adam{model};
  std::string folder;
  explicit Saved(const std::string& name) : scratch(name) {
    train(model, adam, 1, 3);
    folder = CheckpointFolder(scratch / "run").save(model.parameters(), adam, {3, 11, {{"scheme", "cope"}}});
  }
  // Returns the error of loading after `damage` was done to the folder.
  template <class Kind = InputError, class Damage> std::string refusal(const Damage& damage) {
    const fs::path copy = scratch.folder / "damaged";
    fs::remove_all(copy);
    fs::copy(folder, copy);
    damage(copy);
    train(model, adam, 4, 4);
    const std::vector<double> before = numbers(model, adam);
    const std::string message = error_text<Kind>([&] { load_checkpoint(copy.string(), model.parameters(), &adam); });
    CHECK(numbers(model, adam) == before);
    CHECK(message.starts_with(copy.string()));
    return message;
  }
};

}  // namespace

TEST_CASE("checkpoint: ten steps are five, a save, a load into a fresh model, and five more") {
  const Scratch scratch("resume");
  const auto check = [&]<class O>(const auto& options, const O*) {
    Regression straight, first_half, second_half;
    O a(straight, options), b(first_half, options), c(second_half, options);
    train(straight, a, 1, 10);
    train(first_half, b, 1, 5);
    const std::string folder =
        CheckpointFolder(scratch / "run").save(first_half.parameters(), b, {5, 11, {{"data", "x\ny"}}});
    CHECK(folder == scratch / "run" + "/step-000005");
    CHECK(files_in(folder) == Names{"optimizer.safetensors", "weights.safetensors"});
    second_half.initialise(99);
    const TrainingState state = load_checkpoint(folder, second_half.parameters(), &c);
    CHECK(state.step == 5);
    CHECK(state.seed == 11);
    CHECK(state.facts == std::map<std::string, std::string>{{"data", "x\ny"}});
    CHECK(numbers(second_half, c) == numbers(first_half, b));
    train(second_half, c, 6, 10);
    CHECK(numbers(second_half, c) == numbers(straight, a));
    return folder;
  };
  check(AdamOptions{.weight_decay = 0.1}, static_cast<const Adam*>(nullptr));
  for (const double momentum : {0.9, 0.0}) {
    const std::string folder = check(SgdOptions{.momentum = momentum}, static_cast<const Sgd*>(nullptr));
    Regression model;
    Adam other(model);
    const std::vector<double> before = numbers(model, other);
    CHECK(has(error_text<DoesNotFit>([&] { load_checkpoint(folder, model.parameters(), &other); }), "optimizer."));
    CHECK(numbers(model, other) == before);
  }
}

TEST_CASE("checkpoint: weights alone, and readable as plain safetensors") {
  Saved saved("weights");
  Regression other;
  other.initialise(5);
  load_checkpoint(saved.folder, other.parameters(), nullptr);
  Adam untouched(other);
  CHECK(other.head.weight().to_vector() == saved.model.head.weight().to_vector());
  const SafetensorsFile file = read_safetensors(saved.folder + "/weights.safetensors");
  CHECK(file.tensors.size() == 6);
  save_weights(saved.scratch / "w", saved.model.parameters());
  other.initialise(6);
  load_weights(saved.scratch / "w", other.parameters());
  CHECK(other.head.weight().to_vector() == saved.model.head.weight().to_vector());
  Regression wider(9);
  CHECK_THROWS_WITH_AS(
      load_weights(saved.scratch / "w", wider.parameters()), doctest::Contains("f32 [9,3] here"), DoesNotFit);
}

TEST_CASE("checkpoint: the newest are kept, the same step is replaced, the latest is found") {
  const Scratch scratch("keep");
  CHECK_FALSE(find_latest(scratch / "run"));
  Regression model;
  Adam adam(model);
  const CheckpointFolder folder(scratch / "run", 2);
  CHECK_FALSE(find_latest(scratch / "run"));
  for (index_t step = 1; step <= 4; ++step) {
    train(model, adam, step, step);
    folder.save(model.parameters(), adam, {step, 11, {}});
  }
  CHECK(files_in(scratch / "run") == Names{"lock", "step-000003", "step-000004"});
  folder.save(model.parameters(), adam, {4, 12, {}});
  CHECK(files_in(scratch / "run") == Names{"lock", "step-000003", "step-000004"});
  CHECK(*find_latest(scratch / "run") == scratch / "run" + "/step-000004");
  CHECK(read_training_state(*find_latest(scratch / "run")).seed == 12);
  CHECK_THROWS_WITH_AS(folder.save(model.parameters(), adam, {9, 11, {}}), doctest::Contains("has taken 4"), Error);
  const CheckpointFolder all(scratch / "all", 0);
  for (index_t step = 5; step <= 8; ++step) {
    train(model, adam, step, step);
    all.save(model.parameters(), adam, {step, 11, {}});
  }
  CHECK(files_in(scratch / "all").size() == 5);  // 0: all are kept
  fs::create_directory(scratch / "run" + "/step-1000000");
  CHECK(*find_latest(scratch / "run") == scratch / "run" + "/step-1000000");
}

TEST_CASE("checkpoint: saved is saved, although the oldest cannot be removed yet") {
  Saved saved("held");
  const CheckpointFolder folder(saved.scratch / "run", 1);
  const fs::path in_the_way = saved.scratch / "run" + "/step-000003.tmp-" + std::to_string(::getpid());
  fs::create_directories(in_the_way / "x");
  train(saved.model, saved.adam, 4, 4);
  CHECK(folder.save(saved.model.parameters(), saved.adam, {4, 11, {}}).ends_with("step-000004"));
  fs::remove_all(in_the_way);
  folder.save(saved.model.parameters(), saved.adam, {4, 11, {}});
  CHECK(files_in(saved.scratch / "run") == Names{"lock", "step-000004"});
}

TEST_CASE("checkpoint: what an interrupted save left is ignored and then removed") {
  Saved saved("leftover");
  const std::string root = saved.scratch / "run";
  fs::copy(saved.folder, root + "/step-000099.tmp-123");
  fs::create_directory(root + "/step-x");
  CHECK(*find_latest(root) == saved.folder);
  const CheckpointFolder folder(root);
  CHECK(files_in(root) == Names{"lock", "step-000003", "step-x"});
}

TEST_CASE("checkpoint: a process killed while it saves leaves the previous checkpoint loadable") {
  Saved saved("kill");
  const std::string root = saved.scratch / "run";
  const std::vector<double> before = numbers(saved.model, saved.adam);
  for (const useconds_t delay : {200u, 1000u, 2000u, 3000u, 5000u, 10000u, 20000u, 30000u, 50000u}) {
    const pid_t child = fork();
    if (child == 0) save_until_killed(root, saved.model, saved.adam);
    usleep(delay);
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));  // and not because saving failed
    Regression model;
    Adam adam(model);
    load_checkpoint(*find_latest(root), model.parameters(), &adam);
    CHECK(numbers(model, adam) == before);
  }
  const CheckpointFolder folder(root);
  CHECK(files_in(root) == Names{"lock", "step-000003"});
}

TEST_CASE("one process at a time saves in a folder") {
  const Scratch scratch("lock");
  {
    const CheckpointFolder folder(scratch / "run");
    CHECK_THROWS_WITH_AS(CheckpointFolder(scratch / "run"), doctest::Contains("another process"), SystemError);
  }
  const CheckpointFolder again(scratch / "run");
  CHECK_THROWS_WITH_AS(CheckpointFolder("/dev/null/run"), doctest::Contains("cannot write"), SystemError);
  fs::remove(scratch / "run/lock");
  fs::create_symlink(scratch / "elsewhere", scratch / "run/lock");
  CHECK_THROWS_WITH_AS(CheckpointFolder(scratch / "run"), doctest::Contains("cannot write"), SystemError);
  CHECK_FALSE(fs::exists(scratch / "elsewhere"));
  CHECK_THROWS_WITH_AS(CheckpointFolder(scratch / "other", -1), doctest::Contains("-1 checkpoints to"), InputError);
}

TEST_CASE("checkpoint: numbers that are not finite are not saved, and nothing is left behind") {
  const Scratch scratch("finite");
  Regression model;
  Adam adam(model);
  const CheckpointFolder folder(scratch / "run");
  raw::copy_into(Tensor::of({std::nan("")}, {1}), model.head.bias());
  CHECK_THROWS_WITH_AS(folder.save(model.parameters(), adam, {}), doctest::Contains("head.bias [1] holds"), NotFinite);
  CHECK_THROWS_WITH_AS(save_weights(scratch / "w", model.parameters()), doctest::Contains("head.bias"), NotFinite);
  raw::copy_into(Tensor::zeros({1}), model.head.bias());
  raw::copy_into(Tensor::of({std::numeric_limits<double>::infinity()}, {1}), adam.moments().back().second);
  CHECK_THROWS_WITH_AS(folder.save(model.parameters(), adam, {}), doctest::Contains("second.head.bias"), NotFinite);
  CHECK(files_in(scratch / "run") == Names{"lock"});
}

TEST_CASE("missing, cut and foreign files of a checkpoint are refused, and nothing is changed") {
  Saved saved("damage");
  for (const char* const part : {"weights.safetensors", "optimizer.safetensors"}) {
    CAPTURE(part);
    CHECK(has(saved.refusal<SystemError>([&](const fs::path& at) { fs::remove(at / part); }), part));
    const auto size = fs::file_size(fs::path(saved.folder) / part);
    CHECK(has(saved.refusal<FileError>([&](const fs::path& at) { fs::resize_file(at / part, size / 2); }), part));
    CHECK_FALSE(saved.refusal([&](const fs::path& at) { std::ofstream(at / part) << "GGUF"; }).empty());
  }
  const auto metadata = [](const char* key, const std::optional<std::string>& value) {
    return [=](const fs::path& at) {
      rewrite(at / "weights.safetensors", [&](SafetensorsFile& file) {
        file.metadata.erase(key);
        if (value) file.metadata.emplace(key, *value);
      });
    };
  };
  struct Row {
    const char* key;
    std::optional<std::string> value;
    std::string said;
  };
  std::vector<Row> rows{{"whence.format", {}, "whence.format"}, {"whence.skipped", "4", "skipped is '4'"},
      {"whence.optimizer", std::string(64, '0'), "whence.seal"}};
  for (const char* key : {"whence.step", "whence.seed", "whence.skipped", "whence.optimizer"})
    rows.push_back({key, {}, key});
  for (const std::string number : {"", "-3", "3x", "9223372036854775808", "1e2"})
    rows.push_back({"whence.step", number, "is '" + number + "'"});
  for (const Row& row : rows) {
    const std::string message = saved.refusal<FileError>(metadata(row.key, row.value));
    CHECK_MESSAGE(has(message, row.said), message);
  }
  CHECK(has(saved.refusal<DoesNotFit>(metadata("whence.format", "4")), "format 4"));
}

TEST_CASE("all that does not fit is listed at once, and nothing is changed") {
  Saved saved("misfit");
  const std::string message = saved.refusal<DoesNotFit>([](const fs::path& at) {
    const std::string seal = rewrite(at / "optimizer.safetensors", [](SafetensorsFile& file) {
      std::erase_if(file.tensors, [](const auto& entry) { return entry.first == "first.head.bias"; });
    });
    rewrite(at / "weights.safetensors", [&](SafetensorsFile& file) {
      for (auto& [name, tensor] : file.tensors) {
        if (name == "head.weight") name = "foot.weight";
        if (name == "head.bias") tensor = Tensor::zeros({1}, DType::f64);
        if (name == "mlp.in.bias") tensor = Tensor::zeros({7});
      }
      for (auto& [key, value] : file.metadata)
        if (key == "whence.optimizer") value = seal;
    });
  });
  says(message, {"head.weight f32 [1,3]", "foot.weight [1,3]", "head.bias is f64 [1] in weights.safe",
                    "mlp.in.bias is f32 [7]", "lacks first.head.bias"});
  saved.model.freeze("head.*");
  Adam partial(saved.model);
  CHECK_THROWS_WITH_AS(load_checkpoint(saved.folder, saved.model.parameters(), &partial),
      doctest::Contains("has first.head.weight"), DoesNotFit);
}

TEST_CASE("one flipped bit anywhere in any file of a checkpoint is refused with the file's name") {
  Saved saved("flipped");
  const std::vector<double> before = numbers(saved.model, saved.adam);
  for (const std::string& name : files_in(saved.folder)) {
    const std::string path = saved.folder + "/" + name;
    for (std::size_t byte = 0; byte < fs::file_size(path); ++byte) {
      const std::size_t bit = 8 * byte + byte * 5 % 8;
      INFO(name, ", bit ", bit);
      const FlippedBit flipped(path, bit);
      CHECK(has(
          error_text<InputError>([&] { load_checkpoint(saved.folder, saved.model.parameters(), &saved.adam); }), name));
    }
  }
  CHECK(numbers(saved.model, saved.adam) == before);
  load_checkpoint(saved.folder, saved.model.parameters(), &saved.adam);
}

TEST_CASE("a damaged checkpoint is accepted with a note of both hashes; what nothing proves is damaged") {
  Saved saved("believed");
  const auto load = [&] { load_checkpoint(saved.folder, saved.model.parameters(), &saved.adam); };
  for (const std::string& name : files_in(saved.folder)) {
    const std::string path = saved.folder + "/" + name, seal = read_safetensors(path).seal;
    const FlippedBit flipped(path, 8 * (fs::file_size(path) - 2) + 1);  // in a number
    const Notes accepted(true);
    load();
    REQUIRE(accepted.notes.size() == 1);
    CHECK((accepted.notes[0].starts_with(path + ": is damaged") && has(accepted.notes[0], seal)));
  }
  const std::string path = saved.folder + "/weights.safetensors";
  remove_seal(path);
  CHECK(error_text<FileError>(load).starts_with(path + ": is damaged"));
}

TEST_CASE("weights with NaN load with a note of tensor and count; others' with a note that nothing proves them") {
  Saved saved("strange");
  SafetensorsFile file;
  for (const auto& parameter : saved.model.parameters())
    file.tensors.emplace_back(parameter.path, raw::copy(parameter.tensor));
  file.tensors[0].second.data<float>()[2] = std::nanf("");
  file.tensors[0].second.data<float>()[5] = std::numeric_limits<float>::infinity();
  file.tensors[1].second.data<float>()[0] = std::numeric_limits<float>::denorm_min();
  const std::string path = saved.scratch / "w", name = file.tensors[0].first;
  write_safetensors(path, file);
  remove_seal(path);
  const Notes said(false);
  load_weights(path, saved.model.parameters());
  REQUIRE(said.notes.size() == 2);
  CHECK((said.notes[0].starts_with(path) && has(said.notes[0], seal_key)));
  CHECK((said.notes[1].starts_with(path) && has(said.notes[1], name + " holds 2") && has(said.notes[1], "element 2")));
  CHECK(std::isnan(saved.model.parameters()[0].tensor.data<float>()[2]));
}
