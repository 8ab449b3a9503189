#include "examples/whence/look/patch.h"

#include <algorithm>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/look/place.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

const char* const patch_option = "--patch";

// "output layer=0 i=62 = i=58": the place in the pass, and the differences of the place in the source.
struct Patch {
  std::string into, differing;
};

Patch patch_of(const std::string& text) {
  const std::size_t equals = text.find(" = ");
  if (equals == std::string::npos) return {trimmed(text), ""};
  return {trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 3))};
}

std::string text_of(const Patch& patch) {
  return patch.into + (patch.differing.empty() ? "" : " = ") + patch.differing;
}

bool names_axis(const std::string& place, const std::string& word) {
  return std::ranges::any_of(words_of(place), [&](const Word& each) { return each.name == word; });
}

// Returns the place in the source. Words after '=' take precedence over those before it.
std::string source_place(const Patch& patch) {
  const std::vector<Word> differing = words_of(patch.differing);
  std::string text;
  for (const Word& word : differing) {
    if (word.name.empty())
      throw InputError(patch_option, ": '", word.value, "' given after '='; AXIS=PLACE required, of the same quantity");
    text += to_text(' ', word.name, '=', word.value);
  }
  for (const Word& word : words_of(patch.into)) {
    if (std::ranges::find(differing, word.name, &Word::name) != differing.end()) continue;
    text += to_text(' ', word.name, word.name.empty() ? "" : "=", word.value);
  }
  return text;
}

std::string ranges_text(const NamedPlace& place) {
  std::string text;
  for (const auto& [first, last] : place.ranges) text += to_text(text.empty() ? "" : ", ", first, "..", last);
  return text;
}

Change patch_change(const Inspection& inspection, const Forward& source, const Patch& patch) {
  const index_t layers = inspection.subject().model->options().layers;
  if (patch.into.empty())
    throw InputError(patch_option, ": nothing given; a place required, as in \"output layer=0 head=2\"");
  const NamedPlace into = place_named(inspection.quantities(), {}, layers, patch.into, patch_option);
  const NamedPlace from = place_named(source.quantities, {}, source.subject.model->options().layers,
      source_place(patch), to_text(patch_option, ", source"));
  if (into.gradient)
    throw InputError(patch_option, ": ", patch.into, ": a gradient given; a number of the pass required");
  const Quantity &quantity = *into.quantity, &other = *from.quantity;
  if (into.extents() != from.extents()) {
    const std::string text = to_text(patch_option, ": ", text_of(patch), ": places ", ranges_text(into), " of ",
        quantity.value.shape(), " here, ", ranges_text(from), " of ", other.value.shape(),
        " in the source; equal numbers of places required: \"AXIS=FIRST..LAST = AXIS=FIRST..LAST\", or a source of "
        "equal "
        "length");
    const TransformerOptions &one = inspection.subject().model->options(), &two = source.subject.model->options();
    if (one.dim == two.dim && one.heads == two.heads) throw InputError(text);
    throw DoesNotFit(text);
  }
  if (quantity.value.dtype() != other.value.dtype())
    throw DoesNotFit(patch_option, ": ", quantity.path, " is ", quantity.value.dtype(), " here, ", other.value.dtype(),
        " in the source; equal ones required");
  const Axes axes(other);
  const std::vector<double> numbers = other.value.to_vector();
  return {inspection, into, [&](Shape place) {
            for (int axis = 0; axis < place.rank(); ++axis)
              place[axis] += from.ranges[static_cast<std::size_t>(axis)].first;
            return std::pair(0.0, numbers[axes.element(place)]);
          }};
}

Json outcome_json(const PatchOutcome& each) {
  return {{"place", each.place}, {"predicted", each.predicted ? Json(*each.predicted) : Json()}, {"real", each.real},
      {"logit", each.logit}, {"probability", each.probability}, {"likeliest", each.likeliest}};
}

}  // namespace

PatchSource PatchSource::named(const std::string& from, const SubjectOptions& options) {
  if (from.empty()) return {};
  if (!is_folder(options.run) || is_folder(from)) return {.run = from};
  if (language::is_of_text(read_run_record(std::filesystem::path(options.run) / "run.json"))) return {.prompt = from};
  const auto sample = parse_number<std::int64_t>(from);
  if (!sample || *sample < 0 || *sample > 1000000000)
    throw InputError("--from: ", in_quotes(from), " given; the number of a test sequence or a run's folder required");
  return {.sample = *sample};
}

Subject PatchSource::of(SubjectOptions options) const {
  if (!given())
    throw InputError(patch_option, ": given without a source; --from required: a test sequence, a prompt, or a run");
  if (sample >= 0) options.sample = sample;
  if (!prompt.empty()) options.prompt = prompt, options.text.clear();
  const Subject here = subject_of(options);
  if (run.empty()) return here;
  options.run = run, options.step = 0, options.untrained = false, options.sample = 0;
  Subject there = subject_of(options);
  if (there.outputs != here.outputs || there.model->options().vocabulary != here.model->options().vocabulary)
    throw DoesNotFit("--from: ", run, " reads other tokens; a run of the same task or tokeniser required");
  there.tokens = here.tokens, there.targets = here.targets, there.texts = here.texts, there.answers = here.answers;
  return there;
}

std::vector<Change> changes_of(const Inspection& inspection, const Forward& source, const std::string& patches) {
  std::vector<Change> all;
  for (const std::string& patch : parts_of(patches)) all.push_back(patch_change(inspection, source, patch_of(patch)));
  return all;
}

Patching::Patching(const Inspection& inspection, const Forward& source, index_t token, const std::string& answer)
    : inspection_(inspection),
      source_(source),
      before_(inspection.subject(), inspection.prepare()),
      asked_(asked_of(before_, token, answer)) {}

std::string Patching::words() const {
  const Subject& subject = inspection_.subject();
  std::string texts;
  for (const std::string& text : source_.subject.texts) texts += (texts.empty() ? "" : " ") + text;
  return one_line(to_text("The loss, and at token ", asked_.token, ", ",
             in_quotes(subject.texts[static_cast<std::size_t>(asked_.token)]), ", logit and probability of ",
             in_quotes(subject.outputs[static_cast<std::size_t>(asked_.answer)]), ", with numbers of: ", texts)) +
         '\n';
}

PatchOutcome Patching::outcome(const std::string& place, const Forward& after) const {
  const std::vector<double> shares = probabilities_at(after.logits, asked_.token);
  const auto best = static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
  return {place, std::nullopt, after.loss - before_.loss, after.logits.at({0, asked_.token, asked_.answer}),
      shares[static_cast<std::size_t>(asked_.answer)], inspection_.subject().outputs[best]};
}

PatchOutcome Patching::outcome_of(const std::string& patches) const {
  const std::vector<Change> changes = changes_of(inspection_, source_, patches);
  PatchOutcome found = outcome(trimmed(patches), Forward(inspection_.subject(), with(inspection_.prepare(), changes)));
  found.predicted = predicted_change(inspection_, changes);
  return found;
}

std::vector<PatchOutcome> Patching::map_of(const std::string& text) const {
  const Patch patch = patch_of(text);
  std::vector<PatchOutcome> all;
  for (index_t layer = 0; layer < inspection_.subject().model->options().layers; ++layer) {
    const auto in_layer = [&](const std::string& more) {
      return text_of({to_text(patch.into, " layer=", layer, more), patch.differing});
    };
    const NamedPlace place = place_named(inspection_.quantities(), {}, inspection_.subject().model->options().layers,
        to_text(patch.into, " layer=", layer), patch_option);
    const Axes axes(*place.quantity);
    const char axis = axes.has('h') ? 'h' : 't';
    const std::string word = axis == 'h' ? "head" : "t";
    if (!axes.has(axis) || names_axis(patch.into, word)) {
      all.push_back(outcome_of(in_layer("")));
      continue;
    }
    const index_t count = axis == 'h' ? axes.extent('h') : std::min(axes.extent('t'), asked_.token + 1);
    for (index_t k = 0; k < count; ++k) all.push_back(outcome_of(in_layer(to_text(' ', word, '=', k))));
  }
  return all;
}

bool is_map(const std::string& patches) {
  const std::string place = patch_of(patches).into;
  return patches.find(';') == std::string::npos && !names_axis(place, "layer") &&
         place.find("blocks.") == std::string::npos && place.find("embedded") == std::string::npos;
}

Table patch_table(const PatchOutcome& before, const std::vector<PatchOutcome>& outcomes) {
  Table table({"patch", "predicted change of the loss", "real change", "logit", "probability", "likeliest"});
  const auto row = [&](const PatchOutcome& each) {
    table.row({each.place, each.predicted ? digits(*each.predicted) : "-", digits(each.real), digits(each.logit),
        digits(each.probability), one_line(each.likeliest)});
  };
  row(before);
  for (const PatchOutcome& each : outcomes) row(each);
  return table;
}

Json Patching::maps(std::size_t most) const {
  std::vector<const Quantity*> all;
  const auto add = [&](const auto& shown) {
    for (const Quantity& quantity : inspection_.quantities())
      if (quantity.layer == 0 && quantity.probe && shown(quantity)) all.push_back(&quantity);
  };
  add([](const Quantity& quantity) { return quantity.name == "output"; });
  add([](const Quantity& quantity) { return quantity.name == "pattern"; });
  add([](const Quantity& quantity) { return !quantity.scheme.empty() && Axes(quantity).has('h'); });
  add([](const Quantity& quantity) { return quantity.name == "residual"; });
  const auto layers = static_cast<std::size_t>(inspection_.subject().model->options().layers);
  Json::List maps;
  std::size_t passes = 0;
  for (const Quantity* quantity : all) {
    const Axes axes(*quantity);
    const bool heads = axes.has('h');
    passes += layers * static_cast<std::size_t>(heads ? axes.extent('h') : asked_.token + 1);
    if (passes > most) break;
    Json::List outcomes;
    for (const PatchOutcome& each : map_of(quantity->name)) outcomes.push_back(outcome_json(each));
    maps.push_back({{"name", quantity->probe->name}, {"caption", quantity->probe->caption},
        {"by", heads ? "head" : "token"}, {"outcomes", outcomes}});
  }
  const Subject &subject = inspection_.subject(), &source = source_.subject;
  return {{"command", source.command}, {"token", asked_.token},
      {"answer", subject.outputs[static_cast<std::size_t>(asked_.answer)]}, {"texts", source.texts},
      {"before", outcome_json(before())}, {"maps", maps}};
}

std::optional<Subject> patch_source(
    const Subject& subject, const SubjectOptions& options, const PatchSource& source, index_t token) {
  if (source.given()) return source.of(options);
  if (std::ranges::find(subject.facts, "sequence", &std::pair<std::string, std::string>::first) == subject.facts.end())
    return std::nullopt;
  const auto at = static_cast<std::size_t>(token);
  for (std::int64_t further = 1; further <= 32; ++further) {
    SubjectOptions other = options;
    other.sample += further;
    Subject found;
    try {
      found = subject_of(other);
    } catch (const InputError&) { break; }  // the test set ends
    if (found.texts.size() == subject.texts.size() && found.answers[at] && found.answers[at] != subject.answers[at])
      return found;
  }
  return std::nullopt;
}

}  // namespace whence::look
