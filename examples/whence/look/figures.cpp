#include "examples/whence/look/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/look/rows.h"
#include "examples/whence/report/heat_map.h"
#include "examples/whence/report/plot.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

// ---- The table

enum class Shows : unsigned char {
  position_alone,  // a map for each head: the pattern that the position's part of the logits would have by itself
  gates,           // a map for each head
  network          // curves over the keys, for the last query and each head: scores S, bias B, and f(S, B)
};

struct Figure {
  const char* paper;
  int number;
  Shows shows;
  index_t length = 0;       // 0: as trained
  int example = 1;          // the n-th stretch of that length in the text
  int parts = 1, part = 1;  // of the layers; 0 parts: the first, the middle and the last layer ("selected layers")
};

// Each is the first of its example; the next numbers show the next parts. The papers do not say which layers a part has:
// here they are divided evenly over the parts that an example has. DAPE V2 prints "Part 2" of example 2 twice, in Fig. 12
// and 13 and in 24 and 25: the second is taken for the third part.
constexpr Figure examples[] = {{"cope", 4, Shows::position_alone}, {"cope", 6, Shows::gates},
    {"dape", 1, Shows::network, 8192, 1, 0}, {"dape", 7, Shows::network, 512, 1, 3},
    {"dape", 10, Shows::network, 512, 2, 2}, {"dape", 12, Shows::network, 2048, 1, 3},
    {"dape", 15, Shows::network, 2048, 2, 2}, {"dape", 17, Shows::network, 8192, 1, 3},
    {"dape", 20, Shows::network, 8192, 2, 2}, {"dape-v2", 8, Shows::network, 512, 1, 3},
    {"dape-v2", 11, Shows::network, 512, 2, 3}, {"dape-v2", 14, Shows::network, 2048, 1, 3},
    {"dape-v2", 17, Shows::network, 2048, 2, 2}, {"dape-v2", 19, Shows::network, 2048, 3, 2, 2},
    {"dape-v2", 20, Shows::network, 8192, 1, 3}, {"dape-v2", 23, Shows::network, 8192, 2, 3}};

std::vector<Figure> all_figures() {
  std::vector<Figure> all;
  for (Figure figure : examples)
    for (; figure.part <= std::max(1, figure.parts); ++figure.part, ++figure.number) all.push_back(figure);
  return all;
}

std::string name_of(const Figure& figure) { return to_text(figure.paper, '/', figure.number); }

std::string shown_by(const Figure& figure) {
  if (figure.shows == Shows::position_alone)
    return "attention by position alone, largest of each query 1; needs position_logit";
  if (figure.shows == Shows::gates) return "the gates on the same text; needs gates";
  const std::string layers = figure.parts == 0 ? "first, middle and last layer"
                                               : to_text("part ", figure.part, " of ", figure.parts, " of the layers");
  return to_text("S, B and f(S, B) over the keys for query ", figure.length, ", ", layers, ", example ", figure.example,
      "; needs ", figure.example * figure.length + 1, " tokens and a network over scores");
}

// ---- What is asked for: "cope/4 layer=1 head=2"

struct FigureRequest {
  Figure figure;
  std::optional<Word> layer = {}, head = {};
  std::string text = {};  // what is read: "tokens 512 to 1023 of austen.txt"
};

FigureRequest request_of(const std::string& text) {
  const std::string asked = text.substr(0, text.find(' '));
  const std::vector<Figure> all = all_figures();
  const auto figure = std::ranges::find(all, asked, name_of);
  if (figure == all.end())
    throw InputError("--figure: ", in_quotes(asked), " given; one of these required\n", figures_list());
  FigureRequest request{*figure};
  for (const Word& word : words_of(text.substr(asked.size()), "--figure")) {
    std::optional<Word>* const part = word.name == "layer"  ? &request.layer
                                      : word.name == "head" ? &request.head
                                                            : nullptr;
    if (!part || *part)
      throw InputError("--figure: ", in_quotes(word.name.empty() ? word.value : word.name),
          " given behind the name; layer=NUMBER or head=NUMBER required, once each");
    *part = word;
  }
  return request;
}

std::vector<index_t> numbers_from(index_t begin, index_t end) {
  std::vector<index_t> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// 0 to count - 1, or the one that was asked for.
std::vector<index_t> chosen(const std::optional<Word>& word, index_t count) {
  if (word) return {word->whole("--figure", 0, count - 1)};
  return numbers_from(0, count);
}

std::vector<index_t> layers_of(const FigureRequest& request, index_t layers) {
  const Figure& figure = request.figure;
  if (request.layer || figure.shows != Shows::network) return chosen(request.layer, layers);
  if (figure.parts == 0) {
    std::vector<index_t> selected{0, layers / 2, layers - 1};
    selected.erase(std::ranges::unique(selected).begin(), selected.end());
    return selected;
  }
  // Of fewer layers than parts some are in several.
  const index_t begin = layers * (figure.part - 1) / figure.parts, end = layers * figure.part / figure.parts;
  return numbers_from(begin, std::max(begin + 1, end));
}

// ---- What a scheme has for it

using HasProbe = std::function<bool(const SchemeInfo&, const ProbeInfo&)>;

// InputError where no scheme of the subject has such a probe, with the names of those that have.
void require_probe(const Figure& figure, const Subject& subject, const std::string& what, const HasProbe& has) {
  const auto fits = [&](const SchemeInfo& scheme) {
    return std::ranges::any_of(scheme.probes, [&](const ProbeInfo& probe) { return has(scheme, probe); });
  };
  const std::vector<SchemeSpec> specs = parse_schemes(subject.model->scheme());
  if (std::ranges::any_of(specs, fits, &SchemeSpec::info)) return;
  std::vector<std::string> names;
  for (const SchemeInfo& scheme : registered_schemes())
    if (fits(scheme)) names.push_back(scheme.name);
  throw InputError("--figure ", name_of(figure), ": ", subject.model->scheme(), " has no ", what,
      "; a run with one of these schemes required: ", joined(names));
}

const Quantity& seen(const std::vector<Quantity>& all, const std::function<bool(const Quantity&)>& is_it) {
  const auto found = std::ranges::find_if(all, is_it);
  if (found == all.end()) throw Error("look: a layer did not pass what its scheme registers");
  return *found;
}

// ---- Maps over the text

// Attention by position alone, its largest weight 1 for each query: softmax(c) / max softmax(c) = exp(c - max c).
void weigh(std::vector<double>& map, index_t length, bool causal) {
  for (index_t i = 0; i < length; ++i) {
    const auto begin = map.begin() + i * length, end = begin + (causal ? i + 1 : length);
    const double most = *std::max_element(begin, end);
    for (auto cell = begin; cell != end; ++cell) *cell = std::exp(*cell - most);
  }
}

// Where a line ends, and where a title such as "= = Description = =" begins.
struct Separators {
  std::vector<std::size_t> ends, titles;
};
Separators separators_of(const std::vector<std::string>& texts) {
  Separators found;
  std::string line;
  std::size_t line_begin = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    if (line.empty()) line_begin = t;
    line += texts[t];
    const bool ends = texts[t].find('\n') != std::string::npos;
    if (ends) found.ends.push_back(t);
    if (!ends && t + 1 < texts.size()) continue;
    const std::size_t first = line.find_first_not_of(" \t\r\n"), last = line.find_last_not_of(" \t\r\n");
    if (first != last && line[first] == '=' && line[last] == '=') found.titles.push_back(line_begin);
    line.clear();
  }
  return found;
}

// Of `name` in one layer, [h t t]; what a later key would have is 0. Computed some rows at a time, so that long texts
// fit.
Tensor maps_of(const Rows& rows, index_t layer, const std::string& name) {
  const index_t length = rows.subject().tokens.numel(), at_once = 64;
  Tensor maps;
  for (index_t begin = 0; begin < length; begin += at_once) {
    const index_t end = std::min(begin + at_once, length);
    const std::vector<Quantity> all = rows.of(layer, begin, end, false);
    const Quantity& found = seen(all, [&](const Quantity& each) { return each.probe && each.probe->name == name; });
    const Tensor value = raw::select(found.value, 0, 0);  // [h end-begin keys]
    if (begin == 0) maps = Tensor::zeros({value.size(0), length, length}, value.dtype());
    raw::copy_into(value, raw::slice(raw::slice(maps, 1, begin, end), 2, 0, value.size(2)));
  }
  return maps;
}

std::string maps_svg(const FigureRequest& request, const Subject& subject) {
  const Figure& figure = request.figure;
  const bool gates = figure.shows == Shows::gates;
  const std::string name = gates ? "gates" : "position_logit";
  require_probe(figure, subject, name,
      [&](const SchemeInfo&, const ProbeInfo& probe) { return probe.axes == "b h i j" && probe.name == name; });
  const TransformerOptions& model = subject.model->options();
  const index_t length = subject.tokens.numel();
  const std::vector<index_t> layers = layers_of(request, model.layers), heads = chosen(request.head, model.heads);
  const auto count = static_cast<double>(layers.size() * heads.size());
  constexpr double most_cells = 4e6;
  if (count * static_cast<double>(length * length) > most_cells)
    throw InputError("--figure ", name_of(figure), ": ", count, " maps of ", length,
        " tokens would be too large a file; layer=NUMBER and head=NUMBER behind the name, or --length ",
        std::floor(std::sqrt(most_cells / count)), " required");
  const Separators separators = separators_of(subject.texts);
  const Rows rows(subject, false);
  std::vector<report::HeatMap> maps;
  for (const index_t layer : layers) {
    const Tensor of_heads = maps_of(rows, layer, name);
    for (const index_t head : heads) {
      report::HeatMap map{.title = to_text("layer ", layer, ", head ", head),
          .tokens = static_cast<std::size_t>(length),
          .values = raw::select(of_heads, 0, head).to_vector(),
          .causal = model.causal,
          .marks = separators.ends};
      if (!gates) weigh(map.values, length, model.causal);
      map.marks.insert(map.marks.end(), separators.titles.begin(), separators.titles.end());
      maps.push_back(std::move(map));
    }
  }
  const std::string marks = to_text("Plus signs on the diagonal: newlines (", separators.ends.size(),
      ") and section titles (", separators.titles.size(), "). Read: ", request.text, ".");
  return report::svg_file(to_text(gates ? "Gates" : "Attention by position alone", " of ", subject.title,
                              ", as CoPE, Fig. ", figure.number),
      to_text(gates ? "How much query i counts key j."
                    : "softmax over the keys of position_logit, the largest weight of each query scaled to 1.",
          ' ', marks, " Hatched: later keys."),
      maps, heads.size());
}

// ---- Curves over the keys

bool is_network(const SchemeInfo& scheme, const ProbeInfo& probe) {
  return scheme.takes_base && probe.axes == "b h i j" && probe.name.ends_with("_bias");
}

// The first query's row of each head, [h keys]; -0 as 0.
Tensor row_of(const Quantity& quantity) {
  const Tensor row = raw::cast(raw::select(raw::select(quantity.value, 0, 0), 1, 0), DType::f64);
  return raw::add(row, Tensor::scalar(0, DType::f64));
}

report::Plot plot_of(const std::string& title, const Tensor& curves, const std::vector<index_t>& heads) {
  report::Plot plot{title, "key j", "", {}};
  for (const index_t head : heads) {
    report::Curve curve{to_text("head ", head), {}, raw::select(curves, 0, head).to_vector()};
    curve.x.resize(curve.y.size());
    std::iota(curve.x.begin(), curve.x.end(), 0.0);
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

// S, B where the base has a bias, and f of them, for the last query of one layer.
std::vector<report::Plot> network_plots(const Rows& rows, index_t layer, const std::vector<index_t>& heads) {
  const index_t tokens = rows.subject().tokens.numel();
  const std::vector<Quantity> all = rows.of(layer, tokens - 1, tokens, false);
  const Quantity& scores = seen(all, [](const Quantity& each) { return each.name == "scores"; });
  const Quantity& network = seen(all, [](const Quantity& each) {
    return each.probe && !each.scheme.empty() && is_network(parse_schemes(each.scheme)[0].info(), *each.probe);
  });
  const std::string base = network.name.substr(0, network.name.rfind('.') + 1) + "base.";
  Tensor bias;
  for (const Quantity& each : all)
    if (each.name.starts_with(base) && each.probe && each.probe->name == "bias")
      bias = bias.defined() ? raw::add(bias, row_of(each)) : row_of(each);
  const std::string where = to_text(", layer ", layer), of_what = bias.defined() ? "f(S, B), " : "f(S), ";
  std::vector<report::Plot> plots{plot_of("S, the scores" + where, row_of(scores), heads)};
  if (bias.defined()) plots.push_back(plot_of("B, the bias of the base" + where, bias, heads));
  plots.push_back(plot_of(of_what + network.probe->name + where, row_of(network), heads));
  return plots;
}

std::string network_svg(const FigureRequest& request, const Subject& subject) {
  const Figure& figure = request.figure;
  require_probe(figure, subject, "network f over scores", is_network);
  const TransformerOptions& model = subject.model->options();
  const std::vector<index_t> layers = layers_of(request, model.layers), heads = chosen(request.head, model.heads);
  const Rows rows(subject, false);
  std::vector<report::Plot> plots;
  for (const index_t layer : layers) std::ranges::move(network_plots(rows, layer, heads), std::back_inserter(plots));
  const std::size_t across = plots.size() / layers.size();
  return report::svg_file(to_text("Query ", subject.tokens.numel() - 1, " of ", subject.title, ", as ",
                              figure.paper == std::string("dape") ? "DAPE" : "DAPE V2", ", Fig. ", figure.number),
      to_text("Curves over the keys for the last query. S is scaled by 1/sqrt(d). ",
          across == 2 ? "The base has no bias: B = 0. " : "", "Example ", figure.example, ": ", request.text, "."),
      plots, across);
}

}  // namespace

std::string figures_list() {
  std::string text;
  for (const Figure& figure : all_figures()) {
    const std::string name = name_of(figure);
    text += to_text("  ", name, std::string(12 - name.size(), ' '), shown_by(figure), '\n');
  }
  return text + "  behind a name: layer=NUMBER, head=NUMBER\n";
}

std::string figure_svg(const std::string& text, SubjectOptions options) {
  FigureRequest request = request_of(text);
  const Figure& figure = request.figure;
  if (options.length == 0) options.length = figure.length;
  const bool task = options.text.empty();  // another example is another sequence there
  options.skip = (figure.example - 1) * (task ? 1 : options.length);
  const Subject subject = subject_of(options);
  const index_t there = subject.tokens.numel();
  if (there < options.length)
    throw InputError("--figure ", name_of(figure), ": ", options.length, " tokens ",
        task || options.skip == 0 ? "" : to_text("from token ", options.skip, " on "), "asked for; ",
        task ? options.run : options.text, " has ", there, "; a longer text, or --length NUMBER, required");
  request.text = !is_folder(options.run) ? "letters drawn at random"
                 : task                  ? to_text("sequence ", options.sample + options.skip, " of the first test set")
                        : to_text("tokens ", options.skip, " to ", options.skip + there - 1, " of ", options.text);
  return figure.shows == Shows::network ? network_svg(request, subject) : maps_svg(request, subject);
}

}  // namespace whence::look
