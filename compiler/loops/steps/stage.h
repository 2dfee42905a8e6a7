// stage.h — steps that change where values come from and where they are kept: `apart`, `stage`,
// `load`, `keep` and `again`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `apart x`: each way in which tensor x is read gets a name of its own for x, so that what is read
/// in one way can be copied elsewhere than the rest.
struct ApartStep {
  static constexpr std::string_view kName = "apart";
  std::string tensor;
  void fields(auto& visit) { visit.tensor(tensor); }
};
std::optional<Refusal> legal(const LoopTree& tree, const ApartStep& step);
LoopTree take(LoopTree tree, const ApartStep& step);

/// `stage x l`: a task at the top of l copies on chip what a turn of l reads of tensor x. `stage %v
/// l`: the same for a value that was made before l; the copy stands in front of the first task that
/// reads it.
struct StageStep {
  static constexpr std::string_view kName = "stage";
  MadeName source;
  LoopName loop;
  bool transposed = false;  ///< whether the last two axes of the copy change places
  void fields(auto& visit) {
    visit(source);
    visit(loop);
    visit.flag(transposed, "transposed");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const StageStep& step);
LoopTree take(const LoopTree& tree, const StageStep& step);

/// `keep %v chip`: chooses the storage of a value.
struct KeepStep {
  static constexpr std::string_view kName = "keep";
  std::string value;
  Storage storage = Storage::Registers;
  void fields(auto& visit) {
    visit.value(value);
    visit(storage);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const KeepStep& step);
LoopTree take(LoopTree tree, const KeepStep& step);

/// `load x l`: a task at the top of l loads, once, the part of tensor x that a turn of l reads.
struct LoadStep {
  static constexpr std::string_view kName = "load";
  std::string tensor;
  LoopName loop;
  void fields(auto& visit) {
    visit.tensor(tensor);
    visit(loop);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const LoadStep& step);
LoopTree take(const LoopTree& tree, const LoadStep& step);

/// `again %v k`: readers in k compute v themselves. A copy of its task is put there, with the loops
/// that only this task needs.
struct AgainStep {
  static constexpr std::string_view kName = "again";
  std::string value;
  LoopName loop;
  void fields(auto& visit) {
    visit.value(value);
    visit(loop);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const AgainStep& step);
LoopTree take(const LoopTree& tree, const AgainStep& step);

}  // namespace braze
