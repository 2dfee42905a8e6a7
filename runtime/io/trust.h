// trust.h — decides from which files Braze takes code.
//
// A checksum proves that a file is complete, not who wrote it. Machine code is therefore taken only
// from a file that nobody but this user and root can have written:
//
//   1. The file is regular and not a symbolic link, and belongs to this user (the effective one) or
//      to root. Neither its group nor others may write to it.
//   2. The same holds for every folder on the way from / to the file. A folder with the sticky bit,
//      such as /tmp, may also be on the way. In such a folder everybody may make files, but remove
//      only their own, so the owner and the mode of a file protect it.
//   3. Symbolic links among the folders are followed if they belong to this user or to root. The
//      folders to which they lead must obey the same rules.
//
// It may also be taken from a file that a trusted key has signed: signature.h.
//
// These rules also cover access control lists, because the group's bits show the mask of a list.
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
