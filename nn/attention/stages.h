// The schemes of one attention, sorted into the stages that they take part in (nn/attention/position.h).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/observer.h"
#include "nn/attention/position.h"

namespace whence {

struct RunsInTiles;  // nn/attention/tile_terms.h

// A scheme's part in one stage, the path of its probes, and the schemes that move its positions, outermost first.
template <class Interface> struct StageOf {
  const Interface* scheme;
  const std::string* path;
  std::vector<const MovesPositions*> movers = {};

  Positions moved(Positions positions) const {
    for (const MovesPositions* mover : movers) positions = mover->move(positions);
    return positions;
  }
  AttendContext at(AttendContext context) const {
    if (!movers.empty()) context.positions = moved(context.positions);
    return context;
  }
};

// The Scope in which a stage runs: its scheme's path. A scheme that serves all layers gets the layer's path in front,
// "blocks.0.attention.shared.position.bias", so that its probes differ by layer.
class StageScope {
 public:
  explicit StageScope(const std::string& path) : within_(within(path)), scope_(within_.empty() ? path : within_) {}

 private:
  static std::string within(const std::string& path);  // empty: the path names the layer already

  std::string within_;
  Scope scope_;
};

// The schemes of one attention, sorted into stages once. REQUIRES: they outlive it.
struct Stages {
  std::vector<const PositionalScheme*> schemes;  // the stages read their parameters
  std::vector<StageOf<EmbedsTokens>> embeds;     // run by the model, not by attention
  std::vector<StageOf<RotatesQueryKey>> rotates;
  std::vector<StageOf<ScoresPairs>> scores;  // at most one
  std::vector<StageOf<BiasesScores>> biases;
  std::vector<StageOf<TransformsScores>> transforms;
  std::vector<StageOf<MapsScores>> maps;
  std::vector<StageOf<MakesPattern>> patterns;  // at most one
  std::vector<StageOf<MixesValues>> mixes;
  std::vector<StageOf<MapsOutput>> outputs;
  std::vector<StageOf<RunsInTiles>> tiled;  // stages 4 to 8 again, as tile programs
  index_t window = 0;                       // Visibility::window, the narrowest that a scheme sets; 0: none

  // Sorts these schemes. Throws InputError if two of them do not go together.
  static Stages of(const std::vector<const PositionalScheme*>& schemes);
  void enter(const PositionalScheme& scheme);  // for each interface that the scheme's class inherits
  void enter_moved(const Stages& inner, const MovesPositions& mover);  // all stages of `inner`, at moved positions
  void see_within(index_t keys) { window = narrower(window, keys); }   // REQUIRES: keys >= 0; 0: any

  // True if a scheme reads the layer's input.
  bool reads_x() const {
    return std::ranges::any_of(schemes, [](const PositionalScheme* each) { return each->claims().reads_x; });
  }

  static index_t narrower(index_t a, index_t b) { return a == 0 || b == 0 ? a + b : std::min(a, b); }
};

}  // namespace whence
