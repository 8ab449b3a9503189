#include "examples/whence/look/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/look/rows.h"
#include "examples/whence/report/heat_map.h"
#include "examples/whence/report/plot.h"
#include "tensor/error.h"
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
  int part = 0, parts = 1;  // of the layers; 0: the first, the middle and the last one ("selected layers")
};

// The papers do not say which layers a part has: here they are divided evenly over the parts that an example has. DAPE
// V2 prints "Part 2" of example 2 twice, in Fig. 12 and 13 and in 24 and 25: the second is taken for the third part.
constexpr Figure figures[] = {{"cope", 4, Shows::position_alone}, {"cope", 6, Shows::gates},
    {"dape", 1, Shows::network, 8192}, {"dape", 7, Shows::network, 512, 1, 1, 3},
    {"dape", 8, Shows::network, 512, 1, 2, 3}, {"dape", 9, Shows::network, 512, 1, 3, 3},
    {"dape", 10, Shows::network, 512, 2, 1, 2}, {"dape", 11, Shows::network, 512, 2, 2, 2},
    {"dape", 12, Shows::network, 2048, 1, 1, 3}, {"dape", 13, Shows::network, 2048, 1, 2, 3},
    {"dape", 14, Shows::network, 2048, 1, 3, 3}, {"dape", 15, Shows::network, 2048, 2, 1, 2},
    {"dape", 16, Shows::network, 2048, 2, 2, 2}, {"dape", 17, Shows::network, 8192, 1, 1, 3},
    {"dape", 18, Shows::network, 8192, 1, 2, 3}, {"dape", 19, Shows::network, 8192, 1, 3, 3},
    {"dape", 20, Shows::network, 8192, 2, 1, 2}, {"dape", 21, Shows::network, 8192, 2, 2, 2},
    {"dape-v2", 8, Shows::network, 512, 1, 1, 3}, {"dape-v2", 9, Shows::network, 512, 1, 2, 3},
    {"dape-v2", 10, Shows::network, 512, 1, 3, 3}, {"dape-v2", 11, Shows::network, 512, 2, 1, 3},
    {"dape-v2", 12, Shows::network, 512, 2, 2, 3}, {"dape-v2", 13, Shows::network, 512, 2, 3, 3},
    {"dape-v2", 14, Shows::network, 2048, 1, 1, 3}, {"dape-v2", 15, Shows::network, 2048, 1, 2, 3},
    {"dape-v2", 16, Shows::network, 2048, 1, 3, 3}, {"dape-v2", 17, Shows::network, 2048, 2, 1, 2},
    {"dape-v2", 18, Shows::network, 2048, 2, 2, 2}, {"dape-v2", 19, Shows::network, 2048, 3, 2, 2},
    {"dape-v2", 20, Shows::network, 8192, 1, 1, 3}, {"dape-v2", 21, Shows::network, 8192, 1, 2, 3},
    {"dape-v2", 22, Shows::network, 8192, 1, 3, 3}, {"dape-v2", 23, Shows::network, 8192, 2, 1, 3},
    {"dape-v2", 24, Shows::network, 8192, 2, 2, 3}, {"dape-v2", 25, Shows::network, 8192, 2, 3, 3}};

std::string name_of(const Figure& figure) { return to_text(figure.paper, '/', figure.number); }

std::string shown_by(const Figure& figure) {
  if (figure.shows == Shows::position_alone)
    return "attention by position alone, largest of each query 1; needs position_logit";
  if (figure.shows == Shows::gates) return "the gates on the same text; needs gates";
  const std::string layers = figure.part == 0 ? "first, middle and last layer"
                                              : to_text("part ", figure.part, " of ", figure.parts, " of the layers");
  return to_text("S, B and f(S, B) over the keys for query ", figure.length, ", ", layers, ", example ", figure.example,
      "; needs ", figure.example * figure.length + 1, " tokens and a network over scores");
}

// ---- What is asked for: "cope/4 layer=1 head=2"

struct FigureRequest {
  const Figure* figure = nullptr;
  std::optional<index_t> layer, head;
  std::string text = {};  // what is read: "tokens 512 to 1023 of austen.txt"
};

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

FigureRequest request_of(const std::string& text) {
  FigureRequest wanted;
  const std::string asked = first_word(text);
  for (const Figure& figure : figures)
    if (name_of(figure) == asked) wanted.figure = &figure;
  if (!wanted.figure)
    throw InputError("--figure: ", in_quotes(asked), " given; one of these required\n", figures_list());
  for (const Word& word : words_of(text.substr(asked.size()), "--figure")) {
    std::optional<index_t>* const part = word.name == "layer"  ? &wanted.layer
                                         : word.name == "head" ? &wanted.head
                                                               : nullptr;
    if (!part || *part)
      throw InputError("--figure: ", in_quotes(word.name.empty() ? word.value : word.name),
          " given behind the name; layer=NUMBER or head=NUMBER required, once each");
    *part = word.whole("--figure");
  }
  return wanted;
}

// 0 to count - 1, or the one that was asked for.
std::vector<index_t> chosen(const char* name, const std::optional<index_t>& wanted, index_t count) {
  if (wanted && (*wanted < 0 || *wanted >= count))
    throw InputError("--figure: ", name, '=', *wanted, " given; 0 to ", count - 1, " required");
  std::vector<index_t> all(wanted ? 1 : static_cast<std::size_t>(count), wanted.value_or(0));
  if (!wanted) std::iota(all.begin(), all.end(), index_t(0));
  return all;
}

std::vector<index_t> layers_of(const FigureRequest& wanted, index_t layers) {
  const Figure& figure = *wanted.figure;
  std::vector<index_t> all = chosen("layer", wanted.layer, layers);
  if (wanted.layer || figure.shows != Shows::network) return all;
  if (figure.part == 0) {
    all = {0, layers / 2, layers - 1};
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  }
  // Of fewer layers than parts some are in several.
  const index_t begin = layers * (figure.part - 1) / figure.parts, end = layers * figure.part / figure.parts;
  all.resize(static_cast<std::size_t>(std::max<index_t>(1, end - begin)));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

// ---- What a scheme has for it

bool is_network(const ProbeInfo& probe) { return probe.axes == "b h i j" && probe.name.ends_with("_bias"); }

// "cope, cope_mlp": those whose registration has such a probe.
template <class Has> std::string schemes_with(const Has& has) {
  std::vector<std::string> names;
  for (const SchemeInfo& scheme : registered_schemes())
    if (std::ranges::any_of(scheme.probes, [&](const ProbeInfo& probe) { return has(scheme, probe); }))
      names.push_back(scheme.name);
  return joined(names);
}

[[noreturn]] void refuse_scheme(
    const FigureRequest& wanted, const Subject& subject, const std::string& what, const std::string& schemes) {
  throw InputError("--figure ", name_of(*wanted.figure), ": ", subject.model->scheme(), " has no ", what,
      "; a run with one of these schemes required: ", schemes);
}

const Quantity* find(const std::vector<Quantity>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Quantity::name);
  return found == all.end() ? nullptr : &*found;
}

// ---- Maps over the text

// The rows of queries [0, t) of one quantity, [h][t * t]; what a later key would have is 0.
using Maps = std::vector<std::vector<double>>;

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
  const auto finish_line = [&] {
    const std::size_t first = line.find_first_not_of(" \t\r\n"), last = line.find_last_not_of(" \t\r\n");
    if (first != last && line[first] == '=' && line[last] == '=') found.titles.push_back(line_begin);
    line.clear();
  };
  for (std::size_t t = 0; t < texts.size(); ++t) {
    if (line.empty()) line_begin = t;
    line += texts[t];
    if (texts[t].find('\n') == std::string::npos) continue;
    found.ends.push_back(t);
    finish_line();
  }
  if (!line.empty()) finish_line();
  return found;
}

// Of `name` in one layer, all heads; computed some rows at a time, so that long texts fit.
Maps maps_of(const Rows& rows, const Subject& subject, index_t layer, const std::string& name) {
  const index_t length = subject.tokens.numel(), at_once = 64;
  Maps maps;
  for (index_t begin = 0; begin < length; begin += at_once) {
    const index_t end = std::min(begin + at_once, length);
    const std::vector<Quantity> found = rows.of(layer, begin, end, false);
    const auto quantity =
        std::ranges::find_if(found, [&](const Quantity& each) { return each.probe && each.probe->name == name; });
    if (quantity == found.end()) return {};
    const Tensor& value = quantity->value;  // [1 h end-begin keys]
    const index_t heads = value.size(1), keys = value.size(3);
    const std::vector<double> numbers = value.to_vector();
    maps.resize(static_cast<std::size_t>(heads), std::vector<double>(static_cast<std::size_t>(length * length)));
    for (index_t row = 0; row < heads * (end - begin); ++row)
      std::copy_n(numbers.begin() + row * keys, keys,
          maps[static_cast<std::size_t>(row / (end - begin))].begin() + (begin + row % (end - begin)) * length);
  }
  return maps;
}

std::string maps_svg(const FigureRequest& wanted, const Subject& subject) {
  const bool gates = wanted.figure->shows == Shows::gates, causal = subject.model->options().causal;
  const char* const name = gates ? "gates" : "position_logit";
  const auto has = [&](const ProbeInfo& probe) { return probe.axes == "b h i j" && probe.name == name; };
  const std::vector<SchemeSpec> specs = parse_schemes(subject.model->scheme());
  if (std::ranges::none_of(specs, [&](const SchemeSpec& spec) { return std::ranges::any_of(spec.info().probes, has); }))
    refuse_scheme(
        wanted, subject, name, schemes_with([&](const SchemeInfo&, const ProbeInfo& probe) { return has(probe); }));
  const index_t length = subject.tokens.numel();
  const std::vector<index_t> layers = layers_of(wanted, subject.model->options().layers),
                             heads = chosen("head", wanted.head, subject.model->options().heads);
  const double cells = static_cast<double>(layers.size() * heads.size()) * static_cast<double>(length * length);
  constexpr double most_cells = 4e6;
  if (cells > most_cells)
    throw InputError("--figure ", name_of(*wanted.figure), ": ", layers.size() * heads.size(), " maps of ", length,
        " tokens would be too large a file; layer=NUMBER and head=NUMBER behind the name, or --length ",
        static_cast<index_t>(std::sqrt(most_cells / static_cast<double>(layers.size() * heads.size()))), " required");
  const Separators separators = separators_of(subject.texts);
  const Rows rows(subject, false);
  std::vector<report::HeatMap> maps;
  for (const index_t layer : layers) {
    Maps of_heads = maps_of(rows, subject, layer, name);
    for (const index_t head : heads) {
      report::HeatMap map{.title = to_text("layer ", layer, ", head ", head),
          .tokens = static_cast<std::size_t>(length),
          .values = std::move(of_heads.at(static_cast<std::size_t>(head))),
          .causal = causal,
          .marks = separators.ends};
      if (!gates) weigh(map.values, length, causal);
      map.marks.insert(map.marks.end(), separators.titles.begin(), separators.titles.end());
      maps.push_back(std::move(map));
    }
  }
  const std::string marks = to_text("Plus signs on the diagonal: newlines (", separators.ends.size(),
      ") and section titles (", separators.titles.size(), "). Read: ", wanted.text, ".");
  return report::svg_file(to_text(gates ? "Gates" : "Attention by position alone", " of ", subject.title,
                              ", as CoPE, Fig. ", wanted.figure->number),
      to_text(gates ? "How much query i counts key j."
                    : "softmax over the keys of position_logit, the largest weight of each query scaled to 1.",
          ' ', marks, " Hatched: later keys."),
      maps, heads.size());
}

// ---- Curves over the keys

// The last query's row of each head, [h][keys]; `more` is added where something is there.
using Curves = std::vector<std::vector<double>>;
void add_rows(const Quantity& quantity, Curves& curves) {
  const index_t heads = quantity.value.size(1), keys = quantity.value.size(3);
  const std::vector<double> numbers = quantity.value.to_vector();
  curves.resize(static_cast<std::size_t>(heads), std::vector<double>(static_cast<std::size_t>(keys)));
  for (std::size_t e = 0; e < numbers.size(); ++e)
    curves[e / static_cast<std::size_t>(keys)][e % static_cast<std::size_t>(keys)] += numbers[e];
}

report::Plot plot_of(const std::string& title, const Curves& curves, const std::vector<index_t>& heads) {
  report::Plot plot{title, "key j", "", {}};
  for (const index_t head : heads) {
    report::Curve curve{to_text("head ", head), {}, curves[static_cast<std::size_t>(head)]};
    curve.x.resize(curve.y.size());
    std::iota(curve.x.begin(), curve.x.end(), 0.0);
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

std::string network_svg(const FigureRequest& wanted, const Subject& subject) {
  const auto has = [](const SchemeInfo& scheme, const ProbeInfo& probe) {
    return scheme.takes_base && is_network(probe);
  };
  const std::vector<SchemeSpec> specs = parse_schemes(subject.model->scheme());
  const auto networks = [&](const SchemeSpec& spec) {
    return std::ranges::any_of(spec.info().probes, [&](const ProbeInfo& probe) { return has(spec.info(), probe); });
  };
  if (std::ranges::none_of(specs, networks)) refuse_scheme(wanted, subject, "network f over scores", schemes_with(has));
  const std::vector<index_t> layers = layers_of(wanted, subject.model->options().layers),
                             heads = chosen("head", wanted.head, subject.model->options().heads);
  const index_t last = subject.tokens.numel() - 1;
  const Rows rows(subject, false);
  std::vector<report::Plot> plots;
  std::size_t across = 3;
  for (const index_t layer : layers) {
    const std::vector<Quantity> found = rows.of(layer, last, last + 1, false);
    const auto network = std::ranges::find_if(found, [&](const Quantity& each) {
      return each.probe && !each.scheme.empty() && has(parse_schemes(each.scheme)[0].info(), *each.probe);
    });
    const Quantity* const scores = find(found, "scores");
    if (network == found.end() || !scores) throw Error("look: layer ", layer, ": no scores or no network seen");
    const std::string inside = network->name.substr(0, network->name.rfind('.') + 1) + "base.";
    Curves of_scores, of_bias, of_network;
    add_rows(*scores, of_scores);
    add_rows(*network, of_network);
    for (const Quantity& each : found)
      if (each.name.starts_with(inside) && each.probe && each.probe->name == "bias") add_rows(each, of_bias);
    const std::string where = to_text(", layer ", layer);
    plots.push_back(plot_of("S, the scores" + where, of_scores, heads));
    if (!of_bias.empty()) plots.push_back(plot_of("B, the bias of the base" + where, of_bias, heads));
    plots.push_back(
        plot_of(to_text(of_bias.empty() ? "f(S)" : "f(S, B)", ", ", network->probe->name, where), of_network, heads));
    across = of_bias.empty() ? 2 : 3;
  }
  const Figure& figure = *wanted.figure;
  return report::svg_file(to_text("Query ", last, " of ", subject.title, ", as ",
                              figure.paper == std::string("dape") ? "DAPE" : "DAPE V2", ", Fig. ", figure.number),
      to_text("Curves over the keys for the last query. S is scaled by 1/sqrt(d). ",
          across == 2 ? "The base has no bias: B = 0. " : "", "Example ", figure.example, ": ", wanted.text, "."),
      plots, across);
}

}  // namespace

std::string figures_list() {
  std::string text;
  for (const Figure& figure : figures) {
    const std::string name = name_of(figure);
    text += to_text(
        "  ", name, std::string(std::max<std::size_t>(12, name.size()) - name.size(), ' '), shown_by(figure), '\n');
  }
  return text + "  behind a name: layer=NUMBER, head=NUMBER\n";
}

std::string figure_file_name(const std::string& wanted) {
  std::string name = first_word(wanted);
  std::ranges::replace(name, '/', '-');
  return name;
}

std::string figure_svg(const std::string& text, SubjectOptions options) {
  FigureRequest wanted = request_of(text);
  const Figure& figure = *wanted.figure;
  if (options.length == 0) options.length = figure.length;
  const bool task = options.text.empty();  // another example is another sequence there
  options.skip = (figure.example - 1) * (task ? 1 : options.length);
  const Subject subject = subject_of(options);
  const index_t there = subject.tokens.numel();
  if (there < options.length)
    throw InputError("--figure ", name_of(figure), ": ", options.length, " tokens ",
        task || options.skip == 0 ? "" : to_text("from token ", options.skip, " on "), "asked for; ",
        task ? options.run : options.text, " has ", there, "; a longer text, or --length NUMBER, required");
  wanted.text = !is_folder(options.run) ? "letters drawn at random"
                : task                  ? to_text("sequence ", options.sample + options.skip, " of the first test set")
                       : to_text("tokens ", options.skip, " to ", options.skip + there - 1, " of ", options.text);
  return figure.shows == Shows::network ? network_svg(wanted, subject) : maps_svg(wanted, subject);
}

}  // namespace whence::look
