#include "examples/whence/look/pictures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "examples/whence/cli/results.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/graph_picture.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/plot.h"
#include "examples/whence/report/svg.h"

namespace whence::look {
namespace {

using report::HeatMap;
using report::number;

// ---- Sheets: a quantity cut into what has rows and columns

struct Sheet {
  std::string suffix, words;  // ".head-1"; ", head 1"
  std::size_t offset = 0, rows = 1, columns = 1;
  char row_axis = 'o', column_axis = 'o';
};

struct Axes {
  std::string letters;
  std::vector<index_t> extents;
};

// A batch of one says nothing.
Axes axes_of(const Quantity& quantity) {
  Axes axes;
  for (int axis = 0; axis < quantity.value.rank(); ++axis) {
    const char letter = quantity.probe->axes[static_cast<std::size_t>(2 * axis)];
    if (letter != 'b' || quantity.value.size(axis) > 1)
      axes.letters += letter, axes.extents.push_back(quantity.value.size(axis));
  }
  return axes;
}

// Axes of size 1 say nothing; of more than three the first become one, so that a number, rows and columns remain.
Axes axes_of_parameter(const Tensor& value) {
  Axes axes;
  for (int axis = 0; axis < value.rank(); ++axis)
    if (value.size(axis) != 1) axes.extents.push_back(value.size(axis));
  if (axes.extents.empty()) axes.extents.push_back(1);
  while (axes.extents.size() > 3) {
    axes.extents[1] *= axes.extents[0];
    axes.extents.erase(axes.extents.begin());
  }
  axes.letters = axes.extents.size() == 1 ? "e" : std::string("crw").substr(3 - axes.extents.size());
  return axes;
}

std::vector<Sheet> sheets_of(const Axes& axes) {
  const std::size_t leading = axes.letters.size() > 2 ? axes.letters.size() - 2 : 0;
  Sheet first;
  first.columns = static_cast<std::size_t>(axes.extents.back()), first.column_axis = axes.letters.back();
  if (axes.letters.size() > 1)
    first.rows = static_cast<std::size_t>(axes.extents.end()[-2]), first.row_axis = axes.letters.end()[-2];
  std::vector<Sheet> sheets{first};
  for (std::size_t axis = 0; axis < leading; ++axis) {
    std::vector<Sheet> finer;
    for (const Sheet& sheet : sheets)
      for (index_t at = 0; at < axes.extents[axis]; ++at) {
        Sheet part = sheet;
        const std::string name = axis_part(axes.letters[axis], at);
        part.suffix += "." + name, part.words += to_text(", ", name.substr(0, name.find('-')), ' ', at);
        finer.push_back(part);
      }
    sheets = std::move(finer);
  }
  for (std::size_t k = 0; k < sheets.size(); ++k) sheets[k].offset = k * first.rows * first.columns;
  return sheets;
}

template <class Number> std::vector<Number> part_of(const std::vector<Number>& all, const Sheet& sheet) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(sheet.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(sheet.rows * sheet.columns)};
}

// ---- Pictures of one inspection

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  void take(double value) {
    if (std::isfinite(value)) least = std::min(least, value), most = std::max(most, value);
  }
};

class Pictures {
 public:
  using Take = std::function<void(const std::string& name, const std::string& svg)>;
  Pictures(const Inspection& inspection, const Take& take) : inspection_(inspection), take_(take) {
    for (const std::string& text : inspection.subject().texts) tokens_.push_back(visible(text));
    for (const Reason& reason : inspection.reasons()) {
      const bool masked = reason.stop == Stop::masked, lives = reason.stop == Stop::nothing;
      std::string meaning = lives ? "the gradient is not 0" : meaning_of(reason.stop);
      if (!reason.op.empty()) meaning += to_text(" (", reason.op, ", ", reason.line, ")");
      legend_.push_back({lives ? "lives" : to_string(reason.stop), meaning, masked || lives});
    }
    for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()})
      for (const Quantity& quantity : *all)
        if (shown(quantity)) find_range(quantity);
  }

  void draw_all(const std::vector<EditOutcome>& edits) const {
    for (const std::vector<Quantity>* all : {&inspection_.quantities(), &inspection_.parameters()})
      for (const Quantity& quantity : *all)
        if (shown(quantity)) draw_quantity(quantity);
    for (const WaysTo& to : inspection_.ways()) draw_ways(to);
    take_("graph.svg", graph_svg(graph_of(inspection_), to_text("The step of ", title())));
    if (!edits.empty()) draw_edits(edits);
  }

 private:
  [[nodiscard]] const std::string& title() const { return inspection_.subject().title; }

  // Of parameters those of positions, as on the page.
  static bool shown(const Quantity& quantity) {
    if (quantity.is_parameter)
      return quantity.path.starts_with("position") || quantity.path.find(".position") != std::string::npos;
    return quantity.probe && quantity.layer >= 0;
  }

  // Of values by name, over layers and heads, so that equal colours are equal numbers. Gradients differ by orders of
  // magnitude between heads: each picture has its own colours for them.
  void find_range(const Quantity& quantity) {
    Range& range = ranges_[quantity.name];
    const std::vector<double> all = quantity.value.to_vector();
    for (std::size_t e = 0; e < all.size(); ++e)
      if (!masked(quantity, e)) range.take(all[e]);
  }
  [[nodiscard]] bool masked(const Quantity& quantity, std::size_t entry) const {
    return inspection_.reasons()[quantity.reasons[entry]].stop == Stop::masked;
  }

  void draw_quantity(const Quantity& quantity) const {
    const Axes axes = quantity.probe ? axes_of(quantity) : axes_of_parameter(quantity.value);
    const std::string where = quantity.is_parameter || quantity.layer < 0 ? "" : to_text(", layer ", quantity.layer);
    const std::string front = "position.";
    const std::string name = quantity.name.starts_with(front) ? quantity.name.substr(front.size()) : quantity.name;
    std::string says = quantity.probe    ? to_text(quantity.probe->caption, ":  ", quantity.probe->equation)
                       : quantity.frozen ? "a parameter, frozen"
                                         : "a parameter";
    if (!quantity.line.empty()) says += to_text("  (", quantity.line, ")");
    const std::vector<double> values = quantity.value.to_vector();
    const std::vector<double> gradient =
        quantity.gradient.defined() ? quantity.gradient.to_vector() : std::vector<double>();
    const auto scale = quantity.probe ? quantity.probe->scale : ProbeInfo::Scale::diverging;
    for (const Sheet& sheet : sheets_of(axes)) {
      HeatMap map = empty_map(quantity, sheet);
      const std::string file = quantity.path + sheet.suffix, place = where + sheet.words;
      map.title = name + place, map.note = says;
      map.values = part_of(values, sheet);
      set_scale(map, scale, ranges_.at(quantity.name).least, ranges_.at(quantity.name).most);
      draw_numbers(file + ".value.svg", map);
      if (!gradient.empty()) {
        map.title = to_text("dLoss/d", name, place), map.note = "how the loss changes as this number grows";
        map.values = part_of(gradient, sheet);
        const Range own = range_of(map);
        set_scale(map, ProbeInfo::Scale::diverging, own.least, own.most);
        draw_numbers(file + ".gradient.svg", map);
      }
      map.title = to_text("Why dLoss/d", name, " is zero", place);
      map.note = "by the reason that stops the gradient of each entry";
      map.values.clear();
      map.kinds = part_of(quantity.reasons, sheet), map.legend = legend_;
      take_(file + ".reasons.svg", svg_file(map));
    }
  }

  [[nodiscard]] HeatMap empty_map(const Quantity& quantity, const Sheet& sheet) const {
    HeatMap map{.title = "",
        .note = "",
        .row_label = axis_name(sheet.row_axis),
        .column_label = axis_name(sheet.column_axis),
        .rows = sheet.rows,
        .columns = sheet.columns};
    const auto of_tokens = [](char axis) { return axis == 'i' || axis == 'j' || axis == 't'; };
    if (of_tokens(sheet.row_axis)) map.row_names = tokens_;
    if (of_tokens(sheet.column_axis)) map.column_names = tokens_;
    for (std::size_t cell = 0; cell < sheet.rows * sheet.columns; ++cell)
      map.hidden.push_back(masked(quantity, sheet.offset + cell));
    return map;
  }

  static Range range_of(const HeatMap& map) {
    Range range;
    for (std::size_t cell = 0; cell < map.values.size(); ++cell)
      if (!map.hidden[cell]) range.take(map.values[cell]);
    return range;
  }

  // A single row or column is a curve: its height says more than its colour.
  void draw_numbers(const std::string& file, const HeatMap& map) const {
    if (std::min(map.rows, map.columns) > 1 || map.values.size() == 1) return take_(file, svg_file(map));
    report::Curve curve{"", std::vector<double>(map.values.size()), map.values};
    std::iota(curve.x.begin(), curve.x.end(), 0.0);
    const std::string label = map.rows == 1 ? map.column_label : map.row_label;
    take_(file, report::svg_file(map.title, map.note, {{"", label, "", {curve}}}, 1));
  }

  // A bar for each way: its share of the whole gradient, to the left where it goes against it.
  void draw_ways(const WaysTo& to) const {
    const std::string name = to_text("dLoss/d", to.name, ", layer ", to.layer);
    struct Bar {
      std::string name;
      double along, norm;
    };
    const std::vector<double> whole = to.whole.to_vector();
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    std::vector<Bar> bars;
    double least = 0, most = 1;
    std::size_t longest = 10;
    for (const Way& way : to.ways) {
      const std::vector<double> part = way.gradient.to_vector();
      const double square = dot(whole, whole);
      bars.push_back({name_of(way), square > 0 ? 100 * dot(part, whole) / square : 0, std::sqrt(dot(part, part))});
      least = std::min(least, bars.back().along), most = std::max(most, bars.back().along);
      longest = std::max(longest, bars.back().name.size());
    }
    constexpr double across = 360, step = 26;
    const double left = 24 + 6.6 * static_cast<double>(longest), zero = left - across * least / (most - least);
    report::Picture picture{.width = left + across + 170, .title = to_text("Ways of ", name)};
    picture.description = to_text("the share of each way of ", name, " in the whole, percent: ");
    picture.body = report::svg_text("title", 10, 20, to_text("By which ways ", name, " came"));
    const report::SvgLines note = report::svg_lines("soft", 10, 38,
        "Bars: projection of the way's part on the whole gradient, in percent of it; they add up to 100. Dashed: "
        "against the whole.",
        picture.width - 20);
    picture.body += note.body;
    double y = 44 + note.height;
    for (std::size_t k = 0; k < bars.size(); ++k, y += step) {
      const double end = zero + across * bars[k].along / (most - least);
      picture.description += to_text(bars[k].name, ' ', fixed(bars[k].along, 1), "; ");
      picture.body += report::svg_text("end", left - 10, y + 15, bars[k].name);
      picture.body += to_text("<rect class=\"bar c", k % 6, bars[k].along < 0 ? " against" : "", "\" x=\"",
          number(std::min(zero, end), 6), "\" y=\"", number(y + 2), "\" width=\"", number(std::abs(end - zero), 5),
          "\" height=\"", step - 8, "\"/>");
      picture.body += report::svg_text("", left + across + 10, y + 15,
          to_text(fixed(bars[k].along, 1), " %   norm ", number(bars[k].norm, 3)), " xml:space=\"preserve\"");
    }
    picture.body += report::svg_line("axis", zero, 40 + note.height, zero, y);
    picture.height = y + 12;
    for (int k = 0; k < 6; ++k)
      picture.style += to_text(".bar.c", k, "{fill:var(--c", k, ");fill-opacity:.45;stroke-width:1.4}");
    picture.style += ".against{stroke-dasharray:4 3}";
    take_(to_text("blocks.", to.layer, ".attention.", to.name, ".ways.svg"), svg_file(picture));
  }

  // On the line the gradient told the truth.
  void draw_edits(const std::vector<EditOutcome>& edits) const {
    Range range;
    range.take(0);
    for (const EditOutcome& edit : edits)
      if (edit.predicted) range.take(*edit.predicted), range.take(edit.real);
    const double reach = std::max(range.most - range.least, 1e-300), left = 90, top = 76, size = 380;
    const auto x = [&](double value) { return left + size * (value - range.least) / reach; };
    const auto y = [&](double value) { return top + size - size * (value - range.least) / reach; };
    report::Picture picture{.title = "Edits: what the gradient promised, and what the loss did"};
    picture.description = "real over predicted change of the loss; on the line they are equal";
    picture.body = report::svg_text("title", 10, 20, picture.title) +
                   report::svg_text("soft", 10, 38, picture.description) +
                   report::svg_text("label", 10, top - 12, "real change of the loss") +
                   report::svg_text("label middle", left + size / 2, top + size + 38, "predicted change of the loss");
    picture.body += report::svg_line("diagonal", left, top + size, left + size, top);
    for (int k = 0; k <= 4; ++k) {
      const double at = range.least + (range.most - range.least) * k / 4;
      picture.body += report::svg_line("grid", left, y(at), left + size, y(at)) +
                      report::svg_text("tick end", left - 8, y(at) + 4, number(at, 3)) +
                      report::svg_text("tick middle", x(at), top + size + 18, number(at, 3));
    }
    double line = top;
    std::size_t longest = 0;
    for (std::size_t k = 0; k < edits.size(); ++k) {
      const EditOutcome& edit = edits[k];
      const std::string told = edit.predicted ? number(*edit.predicted, 3) : "no gradient";
      const std::string words = to_text(k + 1, "  ", one_line(edit.text), ": ", told, ", ", number(edit.real, 3));
      longest = std::max(longest, words.size());
      picture.body += report::svg_text("name", left + size + 50, line, words, " xml:space=\"preserve\"");
      line += 15;
      if (!edit.predicted || !std::isfinite(edit.real)) continue;
      picture.body += to_text("<circle class=\"point\" cx=\"", number(x(*edit.predicted), 6), "\" cy=\"",
          number(y(edit.real), 6), "\" r=\"5\"/>");
      picture.body += report::svg_text("at", x(*edit.predicted) + 7, y(edit.real) + 4, std::to_string(k + 1));
    }
    picture.width = left + size + 60 + 6 * static_cast<double>(longest);
    picture.height = std::max(top + size + 50, line + 10);
    picture.style =
        ".diagonal{stroke:var(--c1);stroke-dasharray:6 3} .point{fill:var(--c0);fill-opacity:.7;stroke:var(--page)} "
        "svg .name{font-size:11px} svg .at{font-size:10px}";
    take_("edits.svg", svg_file(picture));
  }

  const Inspection& inspection_;
  const Take& take_;
  std::vector<std::string> tokens_;
  std::vector<HeatMap::Kind> legend_;  // by the number of the reason
  std::map<std::string, Range> ranges_;
};

}  // namespace

std::string axis_name(char letter) {
  switch (letter) {
    case 'h': return "head";
    case 'i': return "query i";
    case 'j': return "key j";
    case 't': return "token t";
    case 'd': return "dimension d";
    case 'c': return "channel c";
    case 'n': return "position n";
    case 'r': return "row";
    case 'w': return "column";
    case 'e': return "entry";
    default: return "one for all";
  }
}

std::string axis_part(char letter, index_t index) {
  const std::string name = axis_name(letter);
  return to_text(name.substr(0, name.find(' ')), '-', index);
}

void set_scale(HeatMap& map, ProbeInfo::Scale scale, double least, double most) {
  if (!(least <= most)) least = most = 0;  // nothing is shown
  const double reach = std::max(std::abs(least), std::abs(most));
  const bool diverging = scale == ProbeInfo::Scale::diverging;
  map.scale = diverging ? HeatMap::Scale::diverging : HeatMap::Scale::sequential;
  map.low = diverging ? -reach : scale == ProbeInfo::Scale::unit ? 0 : std::min(0.0, least);
  map.high = diverging ? reach : scale == ProbeInfo::Scale::unit ? 1 : std::max(0.0, most);
}

void make_pictures(const Inspection& inspection, const std::vector<EditOutcome>& edits,
    const std::function<void(const std::string& name, const std::string& svg)>& take) {
  Pictures(inspection, take).draw_all(edits);
}

}  // namespace whence::look
