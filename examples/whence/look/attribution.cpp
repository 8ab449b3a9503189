#include "examples/whence/look/attribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/inspect/capture.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page_data.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

double dot_of_rows(const double* a, const double* b, index_t count) { return std::inner_product(a, a + count, b, 0.0); }

std::vector<double> sum_of(std::vector<double> sum, const std::vector<double>& more) {
  std::ranges::transform(sum, more, sum.begin(), std::plus{});
  return sum;
}

std::string answer_in_quotes(const Forward& forward, index_t answer) {
  return one_line(in_quotes(forward.subject.outputs[static_cast<std::size_t>(answer)]));
}

std::string token_words(const Forward& forward, index_t token) {
  return to_text("token ", token, ", ", one_line(in_quotes(forward.subject.texts[static_cast<std::size_t>(token)])));
}

std::vector<double> logits_at(const Tensor& logits, index_t token) {
  return raw::select(raw::select(logits, 0, 0), 0, token).to_vector();
}

index_t likeliest(const std::vector<double>& logits, index_t except = -1) {
  index_t best = except == 0 && logits.size() > 1 ? 1 : 0;
  for (index_t k = best + 1; k < std::ssize(logits); ++k)
    if (k != except && logits[static_cast<std::size_t>(k)] > logits[static_cast<std::size_t>(best)]) best = k;
  return best;
}

// Returns the chosen answer, and the four likeliest others.
std::vector<index_t> shown_answers(const Tensor& logits, const Asked& asked) {
  const std::vector<double> all = logits_at(logits, asked.token);
  std::vector<index_t> order(all.size());
  std::iota(order.begin(), order.end(), index_t{0});
  std::ranges::stable_sort(
      order, std::ranges::greater{}, [&](index_t answer) { return all[static_cast<std::size_t>(answer)]; });
  std::erase(order, asked.answer);
  order.insert(order.begin(), asked.answer);
  order.resize(std::min<std::size_t>(order.size(), 5));
  return order;
}

index_t answer_named(const Subject& subject, const std::string& text) {
  const auto found = std::ranges::find(subject.outputs, text);
  if (found == subject.outputs.end()) {
    std::string known;
    for (std::size_t k = 0; k < std::min<std::size_t>(subject.outputs.size(), 8); ++k)
      known += to_text(k ? ", " : "", in_quotes(subject.outputs[k]));
    throw InputError("answer: ", in_quotes(text), " given; one of ", subject.outputs.size(),
        " answers required: ", known, subject.outputs.size() > 8 ? ", ..." : "");
  }
  return found - subject.outputs.begin();
}

}  // namespace

Forward::Forward(const Subject& looked_at, const Prepare& prepare) : subject(looked_at) {
  if (subject.given) throw InputError(subject.title, ": has no logits; a run, or a scheme without --given, required");
  const NoGrad values_only;
  Capture capture("*");
  if (prepare) prepare(capture);
  const Subject::Pass pass = subject.pass();
  capture.stop();
  logits = pass.logits, loss = pass.loss.item();
  quantities = quantities_of(capture, parse_schemes(subject.model->scheme()));
}

Asked asked_of(const Forward& forward, index_t token, const std::string& answer) {
  const Subject& subject = forward.subject;
  const index_t count = std::ssize(subject.answers);
  if (token >= count) throw InputError("token: ", token, " given; 0 to ", count - 1, " required");
  if (token < 0) {
    token = count - 1;
    for (index_t t = 0; t < count; ++t)
      if (subject.answers[static_cast<std::size_t>(t)]) token = t;
  }
  if (!answer.empty()) return {token, answer_named(subject, answer)};
  const auto wanted = static_cast<index_t>(subject.targets.at({0, token}));
  return {token, wanted >= 0 ? wanted : likeliest(logits_at(forward.logits, token))};
}

index_t other_answer(const Forward& forward, const Asked& asked) {
  return likeliest(logits_at(forward.logits, asked.token), asked.answer);
}

// ---- The parts of the residual stream, in the order in which they are added

Attribution::Attribution(const Forward& forward, std::vector<index_t> tokens)
    : forward_(forward), tokens_(std::move(tokens)), dim_(forward.subject.model->options().dim) {
  const Transformer& model = *forward.subject.model;
  const TransformerOptions& options = model.options();
  Numbers x = rows_of(seen("embedded"));
  Numbers table = parameter("embedding.weight").to_vector(), embedding;
  const double scale = options.scale_embedding ? std::sqrt(static_cast<double>(dim_)) : 1;
  for (const index_t t : tokens_) {
    const auto row = table.begin() + static_cast<index_t>(forward.subject.tokens.at({0, t})) * dim_;
    std::transform(row, row + dim_, std::back_inserter(embedding), [&](double number) { return number * scale; });
  }
  Numbers position = x;
  std::ranges::transform(position, embedding, position.begin(), std::minus{});
  add_part(-1, "embedding", std::move(embedding));
  if (std::ranges::any_of(position, [](double number) { return number != 0; }))
    add_part(-1, "position", std::move(position));
  for (index_t layer = 0; layer < options.layers; ++layer) {
    const bool after = options.norm_place == NormPlace::after;
    const Block& block = model.block(layer);
    x = sum_of(std::move(x), add_attention(layer));
    if (after) x = add_norm(layer, "norm1 bias", block.norm1(), x);
    x = sum_of(std::move(x), add_mlp(layer));
    if (after) (void)add_norm(layer, "norm2 bias", block.norm2(), x);
    x = rows_of(seen(to_text("blocks.", layer, ".residual")));
  }
  if (model.norm()) (void)add_norm(-1, "norm bias", *model.norm(), x);
}

std::vector<double> Attribution::of(const Asked& asked) const {
  const auto found = std::ranges::find(tokens_, asked.token);
  const auto row = found - tokens_.begin();
  const Tensor head = parameter("head.weight"), weight = head.defined() ? head : parameter("embedding.weight");
  Numbers by = raw::select(weight, 0, asked.answer).to_vector(), parts(parts_.size());  // dLogit/d(residual stream)
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const FixedNorm& norm = step->norm;
    if (!step->is_norm) {
      parts[step->part] = dot_of_rows(by.data(), &step->added[static_cast<std::size_t>(row * dim_)], dim_);
      continue;
    }
    if (step->part != no_part) parts[step->part] = dot_of_rows(by.data(), norm.bias.data(), dim_);
    std::ranges::transform(by, norm.weight, by.begin(), std::multiplies{});
    const double mean = norm.bias.empty() ? 0 : std::accumulate(by.begin(), by.end(), 0.0) / static_cast<double>(dim_);
    for (double& each : by) each = (each - mean) * norm.inverse[static_cast<std::size_t>(row)];
  }
  double sum = 0, size = 0;
  for (const double part : parts) sum += part, size += std::abs(part);
  const double logit = forward_.logits.at({0, asked.token, asked.answer});
  const double near = forward_.logits.dtype() == DType::f64 ? 1e-9 : 1e-3;
  if (!(std::abs(sum - logit) <= near * size))
    throw InputError("--attribution: the parts add up to ", digits(sum), " and the logit is ", digits(logit),
        "; a pass required in which no edit replaces the residual stream");
  return parts;
}

Attribution::Numbers Attribution::rows_of(const Tensor& x) const {
  const index_t width = x.numel() / x.size(0);
  const Numbers all = x.to_vector();
  Numbers rows;
  for (const index_t t : tokens_) rows.insert(rows.end(), all.begin() + t * width, all.begin() + (t + 1) * width);
  return rows;
}

// Returns rows * transpose(weight).
Attribution::Numbers Attribution::product(const Numbers& rows, const Tensor& weight) const {
  const Tensor left = Tensor::of(rows, {std::ssize(tokens_), weight.size(1)}, DType::f64);
  return raw::matmul(left, raw::transpose(raw::cast(weight, DType::f64))).to_vector();
}

Attribution::Numbers Attribution::add_part(index_t layer, const std::string& name, Numbers added) {
  parts_.push_back({layer, name});
  steps_.push_back({.added = std::move(added), .norm = {}, .part = parts_.size() - 1});
  return steps_.back().added;
}

Attribution::Numbers Attribution::add_bias(index_t layer, const std::string& name, const std::string& path) {
  const Tensor bias = parameter(path);
  if (!bias.defined()) return Numbers(tokens_.size() * static_cast<std::size_t>(dim_));
  Numbers rows;
  for (std::size_t k = 0; k < tokens_.size(); ++k) std::ranges::copy(bias.to_vector(), std::back_inserter(rows));
  return add_part(layer, name, std::move(rows));
}

Attribution::Numbers Attribution::add_norm(
    index_t layer, const std::string& name, const Norm& norm, const Numbers& of) {
  FixedNorm fixed{norm.weight().to_vector(), norm.bias().defined() ? norm.bias().to_vector() : Numbers(), {}};
  Numbers normed;
  for (std::size_t k = 0; k < tokens_.size(); ++k) {
    const double* row = &of[k * static_cast<std::size_t>(dim_)];
    const double n = static_cast<double>(dim_),
                 mean = fixed.bias.empty() ? 0 : std::accumulate(row, row + dim_, 0.0) / n;
    double squares = 0;
    for (index_t c = 0; c < dim_; ++c) squares += (row[c] - mean) * (row[c] - mean);
    fixed.inverse.push_back(1 / std::sqrt(squares / n + norm.epsilon()));
    for (std::size_t c = 0; c < fixed.weight.size(); ++c)
      normed.push_back(
          (row[c] - mean) * fixed.inverse.back() * fixed.weight[c] + (fixed.bias.empty() ? 0 : fixed.bias[c]));
  }
  if (!fixed.bias.empty()) parts_.push_back({layer, name});
  const std::size_t part = fixed.bias.empty() ? no_part : parts_.size() - 1;
  steps_.push_back({.added = {}, .norm = std::move(fixed), .is_norm = true, .part = part});
  return normed;
}

Attribution::Numbers Attribution::add_attention(index_t layer) {
  const std::string inside = to_text("blocks.", layer, ".attention.output");
  const Tensor output = seen(inside), weight = parameter(inside + ".weight");  // [h t d], [c hd]
  const index_t width = output.size(2);
  Numbers sum = add_bias(layer, "attention bias", inside + ".bias");
  for (index_t head = 0; head < output.size(0); ++head) {
    const Tensor of_head = raw::slice(weight, 1, head * width, (head + 1) * width);
    sum = sum_of(std::move(sum),
        add_part(layer, to_text("head ", head), product(rows_of(raw::select(output, 0, head)), of_head)));
  }
  return sum;
}

Attribution::Numbers Attribution::add_mlp(index_t layer) {
  const std::string inside = to_text("blocks.", layer, ".mlp.");
  Numbers sum = add_bias(layer, "MLP bias", inside + "out.bias");
  return sum_of(std::move(sum),
      add_part(layer, "MLP", product(rows_of(seen(inside + "hidden")), parameter(inside + "out.weight"))));
}

Tensor Attribution::parameter(const std::string& path) const {
  for (const Module::Parameter& parameter : forward_.subject.model->parameters())
    if (parameter.path == path) return parameter.tensor.detach();
  return {};
}

Tensor Attribution::seen(const std::string& path) const {
  const auto found = std::ranges::find(forward_.quantities, path, &Quantity::path);
  if (found == forward_.quantities.end()) fail("attribution", path, " passed no probe");
  return raw::select(found->value, 0, 0);
}

std::vector<LensLayer> lens_of(const Forward& forward) {
  const NoGrad values_only;
  std::vector<LensLayer> layers;
  for (const Quantity& quantity : forward.quantities)
    if (quantity.path == "embedded" || quantity.name == "residual")
      layers.push_back({quantity.layer, forward.subject.model->logits_of({quantity.value})});
  return layers;
}

// ---- As the page's data

Json logits_json(const Inspection& inspection, PageNumbers& numbers) {
  const Subject& subject = inspection.subject();
  std::vector<index_t> asked;
  for (index_t t = 0; t < std::ssize(subject.answers); ++t)
    if (subject.answers[static_cast<std::size_t>(t)]) asked.push_back(t);
  if (subject.given || asked.empty()) return {};
  const Forward forward(subject, inspection.prepare());
  const Attribution found(forward, asked);
  const std::vector<LensLayer> lens = lens_of(forward);
  const auto layer_json = [](index_t layer) { return layer < 0 ? Json() : Json(layer); };
  const auto array = [&](const std::vector<double>& each) {
    return numbers.add(Tensor::of(each, {std::ssize(each)}, subject.dtype()));
  };
  Json::List all_parts, stages, tokens;
  for (const LogitPart& part : found.parts())
    all_parts.push_back({{"layer", layer_json(part.layer)}, {"name", part.name}});
  for (const LensLayer& layer : lens) stages.push_back(layer_json(layer.layer));
  for (const index_t token : asked) {
    const std::vector<index_t> answers = shown_answers(forward.logits, asked_of(forward, token));
    std::vector<double> parts, logits, shares;
    Json::List texts, likeliest;
    for (const index_t answer : answers) {
      texts.push_back(subject.outputs[static_cast<std::size_t>(answer)]);
      std::ranges::copy(found.of({token, answer}), std::back_inserter(parts));
    }
    for (const LensLayer& layer : lens) {
      const std::vector<double> all = probabilities_at(layer.logits, token);
      for (const index_t answer : answers) {
        logits.push_back(layer.logits.at({0, token, answer}));
        shares.push_back(all[static_cast<std::size_t>(answer)]);
      }
      const auto best = std::ranges::max_element(all);
      likeliest.push_back(Json::List{subject.outputs[static_cast<std::size_t>(best - all.begin())], *best});
    }
    tokens.push_back({{"token", token}, {"answers", texts}, {"bits", subject.dtype() == DType::f64 ? 64 : 32},
        {"parts", array(parts)}, {"logits", array(logits)}, {"shares", array(shares)}, {"likeliest", likeliest}});
  }
  return {{"parts", all_parts}, {"stages", stages}, {"tokens", tokens}};
}

// ---- As tables

std::string attribution_words(const Forward& forward, const Asked& asked) {
  return to_text("The logit of ", answer_in_quotes(forward, asked.answer), " at ", token_words(forward, asked.token),
      ", next to that of ", answer_in_quotes(forward, other_answer(forward, asked)),
      ", the likeliest other answer. Norms are kept fixed at this pass.\n");
}

std::vector<AttributedPart> attribution_of(const Forward& forward, const Asked& asked) {
  const Attribution found(forward, {asked.token});
  const std::vector<double> one = found.of(asked), other = found.of({asked.token, other_answer(forward, asked)});
  std::vector<AttributedPart> parts;
  for (std::size_t k = 0; k < one.size(); ++k) parts.push_back({found.parts()[k], one[k], other[k]});
  return parts;
}

Table attribution_table(const std::vector<AttributedPart>& parts) {
  Table table({"layer", "part", "logit", "other", "difference"});
  AttributedPart sum{{-1, "sum"}, 0, 0};
  const auto row = [&](const AttributedPart& each) {
    table.row({each.part.layer < 0 ? "-" : std::to_string(each.part.layer), each.part.name, digits(each.logit),
        digits(each.other), digits(each.logit - each.other)});
  };
  for (const AttributedPart& each : parts) row(each), sum.logit += each.logit, sum.other += each.other;
  row(sum);
  return table;
}

std::string lens_words(const Forward& forward, const Asked& asked) {
  return to_text("The last norm and the output applied to ", token_words(forward, asked.token),
      ", after each layer: logit and probability of ", answer_in_quotes(forward, asked.answer),
      ", and the likeliest answer.\n");
}

std::vector<LensAnswer> lens_answers(const Forward& forward, const Asked& asked) {
  std::vector<LensAnswer> all;
  for (const LensLayer& each : lens_of(forward)) {
    const std::vector<double> shares = probabilities_at(each.logits, asked.token);
    const auto best = static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
    all.push_back({each.layer, each.logits.at({0, asked.token, asked.answer}),
        shares[static_cast<std::size_t>(asked.answer)], forward.subject.outputs[best], shares[best]});
  }
  return all;
}

Table lens_table(const std::vector<LensAnswer>& answers) {
  Table table({"after", "logit", "probability", "likeliest", "its probability"});
  for (const LensAnswer& each : answers)
    table.row({each.layer < 0 ? "embedding" : to_text("layer ", each.layer), digits(each.logit),
        digits(each.probability), one_line(each.likeliest), digits(each.its_probability)});
  return table;
}

}  // namespace whence::look
