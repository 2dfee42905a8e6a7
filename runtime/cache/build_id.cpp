#include "runtime/cache/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ir/support/text.h"

namespace braze {

namespace {

struct Search {
  uintptr_t address;
  std::string found = {};
};

// The description of the GNU build id among the notes of one segment.
std::string id_in_notes(const unsigned char* at, const unsigned char* end) {
  const auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
  ElfW(Nhdr) note;
  while (static_cast<size_t>(end - at) >= sizeof(note)) {
    std::memcpy(&note, at, sizeof(note));
    const unsigned char* const name = at + sizeof(note);
    const unsigned char* const id = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) text += fmt::format("{:02x}", id[i]);
      return text;
    }
    at = std::min(id + padded(note.n_descsz), end);
  }
  return {};
}

int visit(dl_phdr_info* object, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  const auto holds = [&](const ElfW(Phdr) & segment) {
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && search.address >= begin &&
           search.address < begin + segment.p_memsz;
  };
  const ElfW(Phdr)* const begin = object->dlpi_phdr;
  const ElfW(Phdr)* const end = begin + object->dlpi_phnum;
  if (std::none_of(begin, end, holds)) return 0;
  for (const ElfW(Phdr)* segment = begin; segment != end && search.found.empty(); ++segment) {
    if (segment->p_type != PT_NOTE) continue;
    const auto* const notes =
        reinterpret_cast<const unsigned char*>(object->dlpi_addr + segment->p_vaddr);
    search.found = id_in_notes(notes, notes + segment->p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id_around(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address)};
  dl_iterate_phdr(visit, &search);
  return search.found;
}

std::string runtime_build_id() {
  static const char kHere = 0;
  return build_id_around(&kHere);
}

}  // namespace braze
