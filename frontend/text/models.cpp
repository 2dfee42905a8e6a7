#include "frontend/text/models.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "braze/error.h"
#include "ir/support/text.h"
#include "ir/support/utf8.h"

namespace braze {

PairModel::PairModel(Vocabulary vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  for (size_t byte = 0; byte < bytes_.size(); ++byte) {
    const std::string name =
        options_.bytes ? std::string(1, static_cast<char>(byte)) : fmt::format("<0x{:02X}>", byte);
    const auto found = vocabulary_.find(name);
    bytes_[byte] = found == vocabulary_.end() ? -1 : found->second;
  }
}

bool PairModel::add_pair(std::string_view left, std::string_view right) {
  const auto l = vocabulary_.find(left), r = vocabulary_.find(right);
  if (l == vocabulary_.end() || r == vocabulary_.end()) return false;
  const auto whole = vocabulary_.find(std::string(left) + std::string(right));
  if (whole == vocabulary_.end()) return false;
  pairs_.try_emplace(static_cast<uint64_t>(l->second) << 32 | static_cast<uint32_t>(r->second),
                     Joined{static_cast<int32_t>(pairs_.size()), whole->second});
  return true;
}

std::vector<int32_t> PairModel::begin(std::string_view piece) const {
  std::vector<int32_t> out;
  const auto byte_of = [this](char c) { return bytes_[static_cast<uint8_t>(c)]; };
  if (options_.bytes) {
    for (const char c : piece)
      if (byte_of(c) >= 0) out.push_back(byte_of(c));
    return out;
  }
  bool after_unknown = false;
  for (size_t at = 0, length = 0; at < piece.size(); at += length) {
    length = std::max<size_t>(utf8_length(piece.substr(at)), 1);
    const std::string_view character = piece.substr(at, length);
    const bool was_unknown = std::exchange(after_unknown, false);
    if (const auto found = vocabulary_.find(character); found != vocabulary_.end()) {
      out.push_back(found->second);
    } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                     [&](char c) { return byte_of(c) >= 0; })) {
      for (const char c : character) out.push_back(byte_of(c));
    } else if (options_.unknown) {
      after_unknown = true;
      if (!was_unknown || !options_.fuse_unknown) out.push_back(*options_.unknown);
    }
  }
  return out;
}

// The symbols form a linked list, from which joined symbols are removed. A queue has the pairs of
// neighbours. An entry of the queue is ignored if its pair no longer exists.
void PairModel::join(std::vector<int32_t>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  constexpr int32_t kGone = -1;
  struct Candidate {
    int32_t rank, left, right, id;
    bool operator>(const Candidate& other) const {
      return std::tuple(rank, left) > std::tuple(other.rank, other.left);
    }
  };
  std::vector<int32_t> before(symbols.size()), behind(symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [](std::vector<int32_t>& list, int32_t i) -> int32_t& {
    return list[static_cast<size_t>(i)];
  };
  const auto add = [&](int32_t left, int32_t right) {
    if (left < 0 || right >= count) return;
    if (const Joined* const joined = find_pair(at(symbols, left), at(symbols, right)))
      candidates.push({joined->rank, left, right, joined->id});
  };
  for (int32_t i = 0; i < count; ++i) {
    at(before, i) = i - 1;
    at(behind, i) = i + 1;
    if (i > 0) add(i - 1, i);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    if (at(symbols, best.left) == kGone || at(behind, best.left) != best.right) continue;
    const Joined* const joined = find_pair(at(symbols, best.left), at(symbols, best.right));
    if (joined == nullptr || joined->rank != best.rank) continue;
    at(symbols, best.left) = best.id;
    at(symbols, best.right) = kGone;
    const int32_t next = at(behind, best.right);
    at(behind, best.left) = next;
    if (next < count) at(before, next) = best.left;
    add(at(before, best.left), best.left);
    add(best.left, next);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kGone), symbols.end());
}

void PairModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (options_.whole_pieces) {
    if (const auto found = vocabulary_.find(piece); found != vocabulary_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<int32_t> symbols = begin(piece);
  join(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void WordModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto begins = [](char c) { return (c & 0xc0) != 0x80; };
  const size_t start = ids.size();
  const auto unknown = [&] {
    ids.resize(start);
    ids.push_back(unknown_);
  };
  if (static_cast<size_t>(std::count_if(piece.begin(), piece.end(), begins)) > most_characters_)
    return unknown();
  for (size_t begin = 0; begin < piece.size();) {
    std::string rest = begin == 0 ? "" : prefix_;
    const size_t lead = rest.size();
    rest += piece.substr(begin);
    auto found = vocabulary_.end();
    while (rest.size() > lead && (found = vocabulary_.find(rest)) == vocabulary_.end()) {
      while (!begins(rest.back())) rest.pop_back();
      rest.pop_back();
    }
    if (found == vocabulary_.end()) return unknown();
    ids.push_back(found->second);
    begin += rest.size() - lead;
  }
}

}  // namespace braze
