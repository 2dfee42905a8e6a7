// trust.h — decides from which files Braze takes code.
//
// A checksum proves that a file is complete, not who wrote it. Machine code is therefore taken only
// from a file that nobody but this user and root can have written:
//
//   1. The file is regular and not a symbolic link, and belongs to this user (the effective one) or
//      to root. Neither its group nor others may write to it.
//   2. The same holds for every folder on the way from
// to the file. A folder in which everybody may
//      make files, but remove only his own (one with the sticky bit, such as /tmp), may be on the
//      way
//      too: a file in it is protected by its own owner and mode.
//   3. Symbolic links among the folders are followed if they belong to this user or to root. The
//      folders to which they lead must obey the same rules.
//
// Or it is taken from a file that a trusted key has signed: signature.h.
//
// Access control lists are covered, because their mask is what the group's bits show.
#pragma once

#include <string>

#include "runtime/io/open_file.h"

namespace braze {

namespace codes {
inline constexpr Code kFileUntrusted{
    "file-untrusted", ErrorKind::InvalidArgument,
    "A file holds code, and users other than this user and root could have written it."};
}  // namespace codes

/// Opens a file for reading by the rules above. Errors: those of open_file, or kFileUntrusted,
/// whose text names the broken rule and the fix.
Descriptor open_trusted_file(const std::string& path);

/// Opens a folder by the same rules. It must not itself be a symbolic link, nor have the sticky
/// bit.
Descriptor open_trusted_folder(const std::string& path);

}  // namespace braze
