#include "examples/whence/language/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

enum class Kind { gpt2, neox };

// Where a parameter of ours is in a file of theirs.
struct Place {
  std::string name;
  bool transposed = false;  // [in, out]
  int third = -1;           // of the fused projection of queries, keys and values
};

bool split(const std::string& path, const std::string& start, std::string& rest) {
  if (!path.starts_with(start)) return false;
  rest = path.substr(start.size());
  return true;
}

std::optional<Place> place_of(Kind kind, const std::string& path) {
  const bool gpt2 = kind == Kind::gpt2;
  const std::string prefix = gpt2 ? "transformer." : "gpt_neox.";
  if (path == "embedding.weight") return Place{prefix + (gpt2 ? "wte.weight" : "embed_in.weight")};
  if (path == "position.table" && gpt2) return Place{prefix + "wpe.weight"};
  if (path == "head.weight") return Place{gpt2 ? "lm_head.weight" : "embed_out.weight"};
  std::string rest;
  if (split(path, "norm.", rest)) return Place{prefix + (gpt2 ? "ln_f." : "final_layer_norm.") + rest};
  if (!split(path, "blocks.", rest)) return std::nullopt;
  const std::size_t dot = rest.find('.');
  const std::string block = prefix + (gpt2 ? "h." : "layers.") + rest.substr(0, dot) + ".",
                    inside = rest.substr(dot + 1);
  struct Pair {
    const char *ours, *gpt2, *neox;
    bool transposed;
    int third;
  };
  static constexpr Pair pairs[] = {{"norm1.", "ln_1.", "input_layernorm.", false, -1},
      {"norm2.", "ln_2.", "post_attention_layernorm.", false, -1},
      {"attention.query.", "attn.c_attn.", "attention.query_key_value.", true, 0},
      {"attention.key.", "attn.c_attn.", "attention.query_key_value.", true, 1},
      {"attention.value.", "attn.c_attn.", "attention.query_key_value.", true, 2},
      {"attention.output.", "attn.c_proj.", "attention.dense.", true, -1},
      {"mlp.in.", "mlp.c_fc.", "mlp.dense_h_to_4h.", true, -1},
      {"mlp.out.", "mlp.c_proj.", "mlp.dense_4h_to_h.", true, -1}};
  for (const Pair& pair : pairs)
    if (split(inside, pair.ours, rest))
      return Place{
          block + (gpt2 ? pair.gpt2 : pair.neox) + rest, gpt2 && pair.transposed && rest == "weight", pair.third};
  return std::nullopt;
}

// A view of one third of a fused weight or bias, [out, in] or [out].
Tensor third_of(Kind kind, const Tensor& fused, int third, index_t heads, bool transposed) {
  if (kind == Kind::gpt2) {
    const int axis = transposed ? 1 : 0;
    const index_t dim = fused.size(axis) / 3;
    const Tensor part = raw::slice(fused, axis, third * dim, (third + 1) * dim);
    return transposed ? raw::transpose(part) : part;
  }
  const index_t each = fused.size(0) / heads / 3;
  std::vector<index_t> extents{heads, 3, each};
  if (fused.rank() == 2) extents.push_back(fused.size(1));
  return raw::select(raw::reshape(fused, Shape(extents)), 1, third);  // [heads, head dim(, in)]
}

Shape fused_shape(const Shape& ours, bool transposed) {
  if (ours.rank() == 1) return {3 * ours[0]};
  return transposed ? Shape{ours[1], 3 * ours[0]} : Shape{3 * ours[0], ours[1]};
}

// ---- config.json

// Where null is as good as nothing.
class Config {
 public:
  explicit Config(const std::string& path) : path_(path), json_(Json::read(read_file(path), path)) {}

  bool has(const char* name) const { return json_.has(name) && !json_.find(name)->is_null(); }
  [[noreturn]] void refuse(const char* name, const std::string& required) const {
    const std::string found = has(name) ? in_quotes(json_.find(name)->line()) : "nothing";
    throw FileError(path_, ": ", name, ": ", found, " found; ", required, " required");
  }
  void require(const char* name, bool holds, const std::string& required) const {
    if (!holds) refuse(name, required);
  }
  index_t size(const char* name) const { return json_.whole(name, 1, index_t{1} << 24); }
  double number(const char* name, double otherwise) const { return has(name) ? json_.number(name) : otherwise; }
  bool yes(const char* name, bool otherwise) const { return has(name) ? json_.truth(name) : otherwise; }
  std::string word(const char* name, const std::string& otherwise) const {
    return has(name) ? json_.text(name) : otherwise;
  }
  const Json& json() const { return json_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Json json_;
};

Activation activation_named(const Config& config, const char* field, const char* otherwise) {
  const std::string name = config.word(field, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  config.refuse(field, "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu");
}

void require_same_epsilon(const Config& config, const char* field) {
  config.require(field, config.number(field, 1e-5) == 1e-5, "1e-05, which is this program's,");
}

TransformerOptions gpt2_options(const Config& config) {
  require_same_epsilon(config, "layer_norm_epsilon");
  config.require("scale_attn_weights", config.yes("scale_attn_weights", true), "true");
  config.require("scale_attn_by_inverse_layer_idx", !config.yes("scale_attn_by_inverse_layer_idx", false), "false");
  config.require("add_cross_attention", !config.yes("add_cross_attention", false), "false");
  return {.vocabulary = config.size("vocab_size"),
      .length = config.size("n_positions"),
      .dim = config.size("n_embd"),
      .layers = config.size("n_layer"),
      .heads = config.size("n_head"),
      .hidden = config.has("n_inner") ? config.size("n_inner") : 0,
      .activation = activation_named(config, "activation_function", "gelu_new"),
      .scheme = "absolute",
      .tied = config.yes("tie_word_embeddings", true)};
}

// What newer versions of transformers keep in rope_parameters, older ones as fields of their own.
double of_rope(const Config& config, const char* newer, const char* older, double otherwise) {
  if (config.has("rope_parameters")) {
    const Json& rope = config.json().object("rope_parameters");
    for (const auto& [name, value] : rope.fields()) {
      const auto* type = value.as<std::string>();
      const bool plain = (name == "rope_type" || name == "type") && type && *type == "default";
      if (!plain && name != "rope_theta" && name != "partial_rotary_factor")
        config.refuse("rope_parameters", "rope_type default, rope_theta and partial_rotary_factor alone");
    }
    if (rope.has(newer)) return rope.number(newer);
  }
  return config.number(older, config.number(newer, otherwise));
}

TransformerOptions neox_options(const Config& config) {
  require_same_epsilon(config, "layer_norm_eps");
  config.require("attention_bias", config.yes("attention_bias", true), "true");
  config.require("rope_scaling", !config.has("rope_scaling"), "no scaling");
  TransformerOptions options{.vocabulary = config.size("vocab_size"),
      .length = config.size("max_position_embeddings"),
      .dim = config.size("hidden_size"),
      .layers = config.size("num_hidden_layers"),
      .heads = config.size("num_attention_heads"),
      .hidden = config.size("intermediate_size"),
      .activation = activation_named(config, "hidden_act", "gelu"),
      .norm_place = config.yes("use_parallel_residual", true) ? NormPlace::parallel : NormPlace::before,
      .initialisation = Initialisation::neox,
      .tied = config.yes("tie_word_embeddings", false)};
  if (options.dim % options.heads != 0) config.refuse("num_attention_heads", "a divisor of hidden_size");
  const index_t head_dim = options.dim / options.heads;
  const double share = of_rope(config, "partial_rotary_factor", "rotary_pct", 0.25),
               base = of_rope(config, "rope_theta", "rotary_emb_base", 10000);
  config.require("rotary_emb_base", base >= 1 && base <= 1e12, "1 to 1e12");
  const double rotated = static_cast<double>(head_dim) * share;
  config.require("rotary_pct", rotated >= 1 && share <= 1, "a share of each head, one dimension or more,");
  const auto width = static_cast<index_t>(rotated);
  std::string given;
  if (base != 10000) given = "base=" + exact(base);
  if (width != head_dim) given += to_text(given.empty() ? "" : ", ", "width=", width);
  options.scheme = given.empty() ? "rope" : "rope(" + given + ")";
  return options;
}

Kind kind_of(const Config& config) {
  const std::string type = config.word("model_type", "");
  if (type != "gpt2" && type != "gpt_neox") config.refuse("model_type", "gpt2 or gpt_neox");
  return type == "gpt2" ? Kind::gpt2 : Kind::neox;
}

// ---- Tensors

std::vector<std::string> weight_files(const std::string& folder) {
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  if (!fs::exists(index)) return {(fs::path(folder) / "model.safetensors").string()};
  std::set<std::string> names;
  const Json page = Json::read(read_file(index), index.string());
  const Json& table = page.object("weight_map");
  for (const auto& [tensor, file] : table.fields()) names.insert(table.text(tensor));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      throw FileError(index.string(), ": file ", in_quotes(name), " found; one of the same folder required");
    files.push_back((fs::path(folder) / name).string());
  }
  if (files.empty()) throw FileError(index.string(), ": no file in weight_map; one required");
  return files;
}

bool is_buffer(const std::string& name) {
  for (const char* end :
      {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

// By their names with the prefix, which files of the bare model lack.
std::map<std::string, Tensor> read_tensors(const std::string& folder, Kind kind, std::vector<std::string>& ignored) {
  const std::string prefix = kind == Kind::gpt2 ? "transformer." : "gpt_neox.";
  std::map<std::string, Tensor> tensors;
  for (const std::string& file : weight_files(folder)) {
    const SafetensorsFile read = read_safetensors(file);
    for (const auto& [name, tensor] : read.tensors) {
      if (is_buffer(name)) {
        ignored.push_back(name);
        continue;
      }
      const bool whole = name.starts_with(prefix) || name == "lm_head.weight" || name == "embed_out.weight";
      if (!tensors.emplace(whole ? name : prefix + name, tensor).second)
        throw FileError(file, ": ", in_quotes(name), " twice; each tensor once required");
    }
  }
  return tensors;
}

void require_finite(const std::string& folder, const std::string& name, const Tensor& x) {
  for (const double value : x.to_vector())
    if (!std::isfinite(value))
      throw FileError(folder, ": ", in_quotes(name), " holds ", value, "; finite numbers required");
}

Tensor as_f32(const std::string& folder, const std::string& name, const Tensor& x) {
  if (x.dtype() != DType::f32 && x.dtype() != DType::f16 && x.dtype() != DType::bf16)
    throw FileError(folder, ": ", in_quotes(name), " is ", x.dtype(), "; f32, f16 or bf16 required");
  return x.dtype() == DType::f32 ? x : raw::cast(x, DType::f32);
}

}  // namespace

bool is_hugging_face(const std::string& folder) { return fs::exists(fs::path(folder) / "config.json"); }

namespace {

const Tensor& tensor_of(
    const std::string& folder, const std::map<std::string, Tensor>& theirs, const Place& place, const Shape& ours) {
  const auto found = theirs.find(place.name);
  if (found == theirs.end())
    throw FileError(folder, ": no tensor ", in_quotes(place.name), "; it required by config.json");
  const Shape wanted = place.third >= 0   ? fused_shape(ours, place.transposed)
                       : place.transposed ? Shape{ours[1], ours[0]}
                                          : ours;
  if (!(found->second.shape() == wanted))
    throw FileError(
        folder, ": ", in_quotes(place.name), " is ", found->second.shape(), "; ", wanted, " required by config.json");
  return found->second;
}

// A model of the sizes that a damaged config.json says might never be finished.
void require_sizes_of_weights(
    const Config& config, Kind kind, const TransformerOptions& options, const std::map<std::string, Tensor>& theirs) {
  const std::string folder = fs::path(config.path()).parent_path().string();
  const auto require = [&](const char* ours, const Shape& shape) {
    (void)tensor_of(folder, theirs, place_of(kind, ours).value(), shape);
  };
  require("embedding.weight", {options.vocabulary, options.dim});
  require("blocks.0.mlp.in.weight", {options.hidden ? options.hidden : 4 * options.dim, options.dim});
  if (kind == Kind::gpt2) require("position.table", {options.length, options.dim});
  const auto there = [&](index_t layer) {
    const std::string start = to_text(kind == Kind::gpt2 ? "transformer.h." : "gpt_neox.layers.", layer, '.');
    const auto found = theirs.lower_bound(start);
    return found != theirs.end() && found->first.starts_with(start);
  };
  index_t layers = 0;
  while (there(layers)) ++layers;
  config.require(kind == Kind::gpt2 ? "n_layer" : "num_hidden_layers", options.layers <= layers,
      to_text(layers, ", as the weights have,"));
}

std::vector<Module::Parameter> parameters_of(const Config& config, const TransformerOptions& options) {
  try {
    return Transformer(options).parameters();
  } catch (const InputError& unfit) { throw FileError(config.path(), ": ", unfit.what()); }
}

}  // namespace

ForeignModel read_hugging_face(const std::string& folder) {
  const Config config((fs::path(folder) / "config.json").string());
  const Kind kind = kind_of(config);
  ForeignModel found{kind == Kind::gpt2 ? gpt2_options(config) : neox_options(config), {}, {}};
  std::map<std::string, Tensor> theirs = read_tensors(folder, kind, found.ignored);
  require_sizes_of_weights(config, kind, found.options, theirs);
  std::set<std::string> used;
  for (const Module::Parameter& parameter : parameters_of(config, found.options)) {
    const Place place = place_of(kind, parameter.path).value();
    const Shape shape = parameter.tensor.shape();
    Tensor whole = tensor_of(folder, theirs, place, shape);
    if (used.insert(place.name).second) {
      whole = as_f32(folder, place.name, whole);
      require_finite(folder, place.name, whole);
      theirs[place.name] = whole;
    }
    const Tensor part = place.third >= 0   ? third_of(kind, whole, place.third, found.options.heads, place.transposed)
                        : place.transposed ? raw::transpose(whole)
                                           : whole;
    found.weights.emplace_back(parameter.path, raw::reshape(raw::contiguous(part), shape));
  }
  // A tied head may be written out.
  if (found.options.tied) used.insert(place_of(kind, "head.weight")->name);
  for (const auto& [name, tensor] : theirs)
    if (!used.contains(name))
      throw FileError(folder, ": tensor ", in_quotes(name), " found; those of config.json's ",
          kind == Kind::gpt2 ? "gpt2" : "gpt_neox", " required");
  return found;
}

namespace {

// Which of the two a model is, with the options of its rotation; InputError naming what neither has.
Kind kind_for(const TransformerOptions& options) {
  const auto require = [](bool holds, const char* option, const std::string& found, const char* required) {
    if (!holds)
      throw InputError(
          "convert: ", option, " ", found, " given; ", required, " required, as GPT-2 and GPT-NeoX have it");
  };
  const std::vector<SchemeSpec> specs = parse_schemes(options.scheme);
  const std::string name = specs.size() == 1 ? specs[0].info().name : "";
  require(name == "absolute" || name == "rope", "scheme", options.scheme, "absolute or rope");
  require(options.norm == NormKind::layer, "norm", "rms", "layer norm");
  require(options.norm_place != NormPlace::after, "norms", "behind", "norms before attention and MLP");
  require(options.activation != Activation::swiglu, "activation", "swiglu", "gelu, gelu_erf or relu");
  require(options.causal && options.bias && options.attention_bias, "model", "without biases or a causal mask", "both");
  require(!options.scale_embedding, "embedding", "scaled", "one that is not");
  require(options.outputs == 0 || options.outputs == options.vocabulary, "outputs", std::to_string(options.outputs),
      "one per token");
  if (name == "absolute") {
    require(options.norm_place == NormPlace::before, "norms", "parallel", "norms before, with scheme absolute,");
    return Kind::gpt2;
  }
  const auto& given = specs[0].given();
  require(!given.contains("layout") || given.at("layout") == "half", "scheme", options.scheme, "layout=half");
  return Kind::neox;
}

Json config_of(Kind kind, const TransformerOptions& options, index_t positions) {
  const std::string act = options.activation == Activation::gelu       ? "gelu_new"
                          : options.activation == Activation::gelu_erf ? "gelu"
                                                                       : "relu";
  const index_t hidden = options.hidden ? options.hidden : 4 * options.dim;
  if (kind == Kind::gpt2)
    return {{"model_type", "gpt2"}, {"architectures", Json::List{"GPT2LMHeadModel"}},
        {"vocab_size", options.vocabulary}, {"n_positions", positions}, {"n_embd", options.dim},
        {"n_layer", options.layers}, {"n_head", options.heads}, {"n_inner", hidden}, {"activation_function", act},
        {"layer_norm_epsilon", 1e-5}, {"tie_word_embeddings", options.tied}, {"resid_pdrop", options.dropout},
        {"embd_pdrop", options.dropout}, {"attn_pdrop", options.pattern_dropout}, {"torch_dtype", "float32"}};
  const auto given = parse_schemes(options.scheme)[0].given();
  const index_t head_dim = options.dim / options.heads;
  const auto number = [&](const char* name, double otherwise) {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : parse_number<double>(found->second).value_or(otherwise);
  };
  const double width = number("width", 0);
  return {{"model_type", "gpt_neox"}, {"architectures", Json::List{"GPTNeoXForCausalLM"}},
      {"vocab_size", options.vocabulary}, {"max_position_embeddings", options.length}, {"hidden_size", options.dim},
      {"num_hidden_layers", options.layers}, {"num_attention_heads", options.heads}, {"intermediate_size", hidden},
      {"hidden_act", act}, {"rotary_pct", width == 0 ? 1.0 : width / static_cast<double>(head_dim)},
      {"rotary_emb_base", number("base", 10000)}, {"use_parallel_residual", options.norm_place == NormPlace::parallel},
      {"layer_norm_eps", 1e-5}, {"attention_bias", true}, {"tie_word_embeddings", options.tied},
      {"hidden_dropout", options.dropout}, {"attention_dropout", options.pattern_dropout}, {"torch_dtype", "float32"}};
}

}  // namespace

void write_hugging_face(
    const std::string& folder, const TransformerOptions& options, const std::vector<Module::Parameter>& weights) {
  const Kind kind = kind_for(options);
  std::map<std::string, Tensor> theirs;
  index_t positions = options.length;
  for (const Module::Parameter& parameter : weights) {
    const Place place = place_of(kind, parameter.path).value();
    const Tensor& own = parameter.tensor;
    if (parameter.path == "position.table") positions = own.size(0);
    if (place.third < 0) {
      theirs[place.name] = raw::contiguous(place.transposed ? raw::transpose(own.detach()) : own.detach());
      continue;
    }
    Tensor& fused = theirs[place.name];
    if (!fused.defined()) fused = Tensor::empty(fused_shape(own.shape(), place.transposed));
    const Tensor part = third_of(kind, fused, place.third, options.heads, place.transposed);
    raw::copy_into(raw::reshape(own.detach(), part.shape()), part);
  }
  SafetensorsFile file;
  for (const auto& [name, tensor] : theirs) file.tensors.emplace_back(name, tensor);
  file.metadata = {{"format", "pt"}};
  write_safetensors((fs::path(folder) / "model.safetensors").string(), file);
  write_file((fs::path(folder) / "config.json").string(), config_of(kind, options, positions).page() + "\n");
}

}  // namespace whence::language
