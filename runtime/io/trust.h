// trust.h — from which files Braze takes code.
//
// A checksum proves that a file is whole, not who wrote it. Machine code is therefore taken only
// from a file that nobody but this user and root can have written:
//
//   1. The file is regular and no symbolic link, and belongs to this user (the effective one) or
//      to root. Neither its group nor others may write to it.
//   2. So it is for every folder on the way from / to it. A folder where everybody may make files
//      but only remove his own (one with the sticky bit, such as /tmp) is a passage, too: what
//      lies in it is safe by its own owner and mode.
//   3. Symbolic links among the folders are followed if they belong to this user or to root; the
//      folders that they lead through are judged alike.
//
// Or from one that a trusted key has signed: signature.h.
//
// Access control lists are covered: their mask is what the group's bits show.
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
/// whose text names the rule that is broken and the way out.
Descriptor open_trusted_file(const std::string& path);

/// Opens a folder by the same rules; it must not be a symbolic link itself, nor sticky.
Descriptor open_trusted_folder(const std::string& path);

}  // namespace braze
