#include "examples/whence/language/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/hugging_face_config.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

enum Kind { gpt2, neox };
constexpr const char* prefixes[] = {"transformer.", "gpt_neox."};  // which files of the bare model lack

// Parameters of ours, and how GPT-2 and GPT-NeoX name them; N is a block's number. Weights are [out, in].
struct Name {
  const char *ours, *theirs[2];
  bool transposed = false;  // GPT-2's weight is [in, out]
  int third = -1;           // of a fused projection: GPT-2's [in, q|k|v], GPT-NeoX's [heads, q|k|v, head dim]
};
constexpr Name names[] = {{"embedding.", {"transformer.wte.", "gpt_neox.embed_in."}},
    {"position.table", {"transformer.wpe.weight", nullptr}},
    {"blocks.N.norm1.", {"transformer.h.N.ln_1.", "gpt_neox.layers.N.input_layernorm."}},
    {"blocks.N.norm2.", {"transformer.h.N.ln_2.", "gpt_neox.layers.N.post_attention_layernorm."}},
    {"blocks.N.attention.query.", {"transformer.h.N.attn.c_attn.", "gpt_neox.layers.N.attention.query_key_value."},
        true, 0},
    {"blocks.N.attention.key.", {"transformer.h.N.attn.c_attn.", "gpt_neox.layers.N.attention.query_key_value."}, true,
        1},
    {"blocks.N.attention.value.", {"transformer.h.N.attn.c_attn.", "gpt_neox.layers.N.attention.query_key_value."},
        true, 2},
    {"blocks.N.attention.output.", {"transformer.h.N.attn.c_proj.", "gpt_neox.layers.N.attention.dense."}, true},
    {"blocks.N.mlp.in.", {"transformer.h.N.mlp.c_fc.", "gpt_neox.layers.N.mlp.dense_h_to_4h."}, true},
    {"blocks.N.mlp.out.", {"transformer.h.N.mlp.c_proj.", "gpt_neox.layers.N.mlp.dense_4h_to_h."}, true},
    {"norm.", {"transformer.ln_f.", "gpt_neox.final_layer_norm."}}, {"head.", {"lm_head.", "embed_out."}}};

// Where a parameter of ours is in a file of theirs.
struct Place {
  std::string name;
  bool transposed;
  int third;
};

Place place_of(Kind kind, std::string path) {
  std::string number;
  if (path.starts_with("blocks.")) {
    number = path.substr(7, path.find('.', 7) - 7);
    path.replace(7, number.size(), "N");
  }
  const auto name = std::ranges::find_if(names, [&](const Name& each) { return path.starts_with(each.ours); });
  if (name == std::end(names) || !name->theirs[kind])
    throw Error("convert: parameter ", path, " given; one that GPT-2 and GPT-NeoX have required");
  const std::string rest = path.substr(std::string_view(name->ours).size());
  std::string theirs = name->theirs[kind] + rest;
  if (const std::size_t at = theirs.find(".N."); at != std::string::npos) theirs.replace(at + 1, 1, number);
  return {theirs, kind == gpt2 && name->transposed && rest == "weight", name->third};
}

Shape shape_there(const Place& place, const Shape& ours) {
  const index_t out = (place.third >= 0 ? 3 : 1) * ours[0];
  if (ours.rank() == 1) return {out};
  return place.transposed ? Shape{ours[1], out} : Shape{out, ours[1]};
}

// A view of what is one parameter of ours, [out, in] or [out], in such a tensor.
Tensor part_of(Kind kind, const Place& place, const Tensor& whole, index_t heads) {
  if (place.third >= 0 && kind == neox) {
    std::vector<index_t> extents{heads, 3, whole.size(0) / heads / 3};
    if (whole.rank() == 2) extents.push_back(whole.size(1));
    return raw::select(raw::reshape(whole, Shape(extents)), 1, place.third);  // [heads, head dim(, in)]
  }
  const Tensor turned = place.transposed ? raw::transpose(whole) : whole;
  if (place.third < 0) return turned;
  const index_t dim = turned.size(0) / 3;
  return raw::slice(turned, 0, place.third * dim, (place.third + 1) * dim);
}

// ---- config.json

// How config.json names our sizes, and what else it always names.
constexpr index_t TransformerOptions::*sizes[] = {&TransformerOptions::vocabulary, &TransformerOptions::length,
    &TransformerOptions::dim, &TransformerOptions::layers, &TransformerOptions::heads, &TransformerOptions::hidden};
constexpr const char* size_names[][std::size(sizes)] = {
    {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"},
    {"vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size"}};
constexpr const char* types[] = {"gpt2", "gpt_neox"};
constexpr const char* activation_fields[] = {"activation_function", "hidden_act"};
constexpr const char* epsilon_fields[] = {"layer_norm_epsilon", "layer_norm_eps"};
// Of several names the first is written.
using ActivationName = std::pair<std::string, Activation>;
const ActivationName activations[] = {{"gelu_new", Activation::gelu}, {"gelu_pytorch_tanh", Activation::gelu},
    {"gelu_fast", Activation::gelu}, {"gelu", Activation::gelu_erf}, {"relu", Activation::relu}};

// What both name alike.
TransformerOptions common_options(const Config& config, Kind kind) {
  TransformerOptions options{.hidden = 0};
  for (std::size_t k = 0; k < std::size(sizes); ++k)  // GPT-2's hidden size may be left out
    if (kind == neox || sizes[k] != &TransformerOptions::hidden || config.has(size_names[kind][k]))
      options.*sizes[k] = config.json().whole(size_names[kind][k], 1, index_t{1} << 24);
  const std::string name = config.word(activation_fields[kind], kind == gpt2 ? "gelu_new" : "gelu");
  const auto activation = std::ranges::find(activations, name, &ActivationName::first);
  if (activation == std::end(activations))
    config.refuse(activation_fields[kind], "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu");
  options.activation = activation->second;
  options.tied = config.yes("tie_word_embeddings", kind == gpt2);
  config.require(
      epsilon_fields[kind], config.number(epsilon_fields[kind], 1e-5) == 1e-5, "1e-05, which is this program's,");
  return options;
}

TransformerOptions gpt2_options(const Config& config) {
  TransformerOptions options = common_options(config, gpt2);
  config.require("scale_attn_weights", config.yes("scale_attn_weights", true), "true");
  config.require("scale_attn_by_inverse_layer_idx", !config.yes("scale_attn_by_inverse_layer_idx", false), "false");
  config.require("add_cross_attention", !config.yes("add_cross_attention", false), "false");
  options.scheme = "absolute";
  return options;
}

TransformerOptions neox_options(const Config& config) {
  TransformerOptions options = common_options(config, neox);
  config.require("attention_bias", config.yes("attention_bias", true), "true");
  options.norm_place = config.yes("use_parallel_residual", true) ? NormPlace::parallel : NormPlace::before;
  options.initialisation = Initialisation::neox;
  if (options.dim % options.heads != 0) config.refuse("num_attention_heads", "a divisor of hidden_size");
  options.scheme = rope_scheme_of(config, options.dim / options.heads, options.length);
  return options;
}

Kind kind_of(const Config& config) {
  const std::string type = config.word("model_type", "");
  config.require("model_type", type == "gpt2" || type == "gpt_neox", "gpt2 or gpt_neox");
  return type == "gpt2" ? gpt2 : neox;
}

// ---- Tensors

std::vector<std::string> weight_files(const std::string& folder) {
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  if (!fs::exists(index)) return {(fs::path(folder) / "model.safetensors").string()};
  std::set<std::string> listed;
  const Json page = Json::read(read_file(index), index.string());
  const Json& table = page.object("weight_map");
  for (const auto& [tensor, file] : table.fields()) listed.insert(table.text(tensor));
  std::vector<std::string> files;
  for (const std::string& name : listed) {
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

Tensor as_f32(const std::string& file, const std::string& name, const Tensor& x) {
  if (x.dtype() != DType::f32 && x.dtype() != DType::f16 && x.dtype() != DType::bf16)
    throw FileError(file, ": ", in_quotes(name), " is ", x.dtype(), "; f32, f16 or bf16 required");
  for (const double value : x.to_vector())
    if (!std::isfinite(value))
      throw FileError(file, ": ", in_quotes(name), " holds ", value, "; finite numbers required");
  return raw::cast(x, DType::f32);
}

// By their names with the prefix.
std::map<std::string, Tensor> read_tensors(const std::string& folder, Kind kind, std::vector<std::string>& ignored) {
  const std::string prefix = prefixes[kind];
  std::map<std::string, Tensor> tensors;
  for (const std::string& file : weight_files(folder)) {
    const SafetensorsFile read = read_safetensors(file);
    for (const auto& [name, tensor] : read.tensors) {
      const bool whole = name.starts_with(prefix) || name == "lm_head.weight" || name == "embed_out.weight";
      if (is_buffer(name))
        ignored.push_back(name);
      else if (!tensors.emplace(whole ? name : prefix + name, as_f32(file, name, tensor)).second)
        throw FileError(file, ": ", in_quotes(name), " twice; each tensor once required");
    }
  }
  return tensors;
}

const Tensor& tensor_of(
    const std::string& folder, const std::map<std::string, Tensor>& theirs, const Place& place, const Shape& ours) {
  const auto found = theirs.find(place.name);
  if (found == theirs.end())
    throw FileError(folder, ": no tensor ", in_quotes(place.name), "; it required by config.json");
  const Shape shape = found->second.shape(), wanted = shape_there(place, ours);
  if (!(shape == wanted))
    throw FileError(folder, ": ", in_quotes(place.name), " is ", shape, "; ", wanted, " required by config.json");
  return found->second;
}

// A model of the sizes that a damaged config.json says might never be finished.
void require_sizes_of_weights(const Config& config, Kind kind, const TransformerOptions& options,
    const std::string& folder, const std::map<std::string, Tensor>& theirs) {
  const auto require = [&](const char* ours, const Shape& shape) {
    (void)tensor_of(folder, theirs, place_of(kind, ours), shape);
  };
  require("embedding.weight", {options.vocabulary, options.dim});
  require("blocks.0.mlp.in.weight", {options.hidden ? options.hidden : 4 * options.dim, options.dim});
  if (kind == gpt2) require("position.table", {options.length, options.dim});
  index_t layers = 0;
  while (theirs.contains(place_of(kind, to_text("blocks.", layers, ".norm1.weight")).name)) ++layers;
  config.require(size_names[kind][3], options.layers <= layers, to_text(layers, ", as the weights have,"));
}

std::vector<Module::Parameter> parameters_of(const Config& config, const TransformerOptions& options) {
  try {
    const PlannedModules planned;  // for names and shapes
    return Transformer(options).parameters();
  } catch (const InputError& unfit) { throw FileError(config.json().place(), ": ", unfit.what()); }
}

// Which of the two a model is, with the options of its rotation; InputError naming what neither has.
Kind kind_for(const TransformerOptions& options) {
  const auto require = [](bool holds, const char* option, const std::string& found, const char* required) {
    if (!holds)
      throw InputError(
          "convert: ", option, " ", found, " given; ", required, " required, as GPT-2 and GPT-NeoX have it");
  };
  const std::vector<SchemeSpec> specs = parse_schemes(options.scheme);
  const std::string name = specs.size() == 1 ? specs[0].info().name : "";
  const std::string rotation = name == "absolute"  ? std::string()
                               : specs.size() == 1 ? rope_refusal(specs[0])
                                                   : "one of absolute and rope";
  require(rotation.empty(), "scheme", options.scheme, rotation.c_str());
  require(options.kv_heads == 0 || options.kv_heads == options.heads, "kv-heads", std::to_string(options.kv_heads),
      "as many as heads");
  require(options.norm == NormKind::layer, "norm", "rms", "layer norm");
  require(options.norm_place != NormPlace::after, "norms", "behind", "norms before attention and MLP");
  require(options.activation != Activation::swiglu, "activation", "swiglu", "gelu, gelu_erf or relu");
  require(options.causal && options.bias && options.attention_bias, "model", "without biases or a causal mask", "both");
  require(!options.scale_embedding, "embedding", "scaled", "one that is not");
  require(options.outputs == 0 || options.outputs == options.vocabulary, "outputs", std::to_string(options.outputs),
      "one per token");
  if (name == "absolute") {
    require(options.norm_place == NormPlace::before, "norms", "parallel", "norms before, with scheme absolute,");
    return gpt2;
  }
  return neox;
}

Json config_of(Kind kind, TransformerOptions options) {
  if (options.hidden == 0) options.hidden = 4 * options.dim;
  Json config{{"model_type", types[kind]},
      {"architectures", Json::List{kind == gpt2 ? "GPT2LMHeadModel" : "GPTNeoXForCausalLM"}}};
  for (std::size_t k = 0; k < std::size(sizes); ++k) config.add(size_names[kind][k], options.*sizes[k]);
  const auto activation = std::ranges::find(activations, options.activation, &ActivationName::second);
  config.add(activation_fields[kind], activation->first);
  if (kind == neox) {
    add_rope(config, parse_schemes(options.scheme)[0], {options.dim, options.heads, options.length});
    config.add("use_parallel_residual", options.norm_place == NormPlace::parallel);
  }
  config.add(epsilon_fields[kind], 1e-5);
  if (kind == neox) config.add("attention_bias", true);
  config.add("tie_word_embeddings", options.tied);
  for (const char* name : kind == gpt2 ? std::vector{"resid_pdrop", "embd_pdrop"} : std::vector{"hidden_dropout"})
    config.add(name, options.dropout);
  config.add(kind == gpt2 ? "attn_pdrop" : "attention_dropout", options.pattern_dropout);
  return config.add("torch_dtype", "float32");
}

}  // namespace

bool is_hugging_face(const std::string& folder) { return fs::exists(fs::path(folder) / "config.json"); }

ForeignModel read_hugging_face(const std::string& folder) {
  const std::string page = (fs::path(folder) / "config.json").string();
  const Config config(Json::read(read_file(page), page));
  const Kind kind = kind_of(config);
  ForeignModel found{kind == gpt2 ? gpt2_options(config) : neox_options(config), {}, {}};
  const std::map<std::string, Tensor> theirs = read_tensors(folder, kind, found.ignored);
  require_sizes_of_weights(config, kind, found.options, folder, theirs);
  std::set<std::string> used;
  for (const Module::Parameter& parameter : parameters_of(config, found.options)) {
    const Place place = place_of(kind, parameter.path);
    const Shape shape = parameter.tensor.shape();
    const Tensor part = part_of(kind, place, tensor_of(folder, theirs, place, shape), found.options.heads);
    found.weights.emplace_back(parameter.path, raw::reshape(raw::contiguous(part), shape));
    used.insert(place.name);
  }
  // A tied head may be written out.
  if (found.options.tied) used.insert(place_of(kind, "head.weight").name);
  for (const auto& [name, tensor] : theirs)
    if (!used.contains(name))
      throw FileError(
          folder, ": tensor ", in_quotes(name), " found; those of config.json's ", types[kind], " required");
  return found;
}

void write_hugging_face(
    const std::string& folder, const TransformerOptions& options, const std::vector<Module::Parameter>& weights) {
  const Kind kind = kind_for(options);
  std::map<std::string, Tensor> theirs;
  TransformerOptions written = options;
  for (const Module::Parameter& parameter : weights) {
    const Place place = place_of(kind, parameter.path);
    const Tensor own = parameter.tensor.detach();
    if (parameter.path == "position.table") written.length = own.size(0);
    Tensor& whole = theirs[place.name];
    if (!whole.defined()) whole = Tensor::empty(shape_there(place, own.shape()));
    const Tensor part = part_of(kind, place, whole, options.heads);
    raw::copy_into(raw::reshape(own, part.shape()), part);
  }
  SafetensorsFile file{.tensors = {theirs.begin(), theirs.end()}, .metadata = {{"format", "pt"}}};
  write_safetensors((fs::path(folder) / "model.safetensors").string(), file);
  write_file((fs::path(folder) / "config.json").string(), config_of(kind, written).page() + "\n");
}

}  // namespace whence::language
