/* braze_mpi.h: what Braze asks of an implementation of MPI.
 *
 * Implementations differ in their binary interface, so that a plugin, braze_mpi.c, is compiled for
 * each: mpicc -shared -fPIC -o libbraze-mpi.so braze_mpi.c
 * Braze opens it at run time and calls it by one thread at a time.
 */
#pragma once

#include <stddef.h>

#define BRAZE_MPI_VERSION 1

/* Functions return 0, or a code that `explain` makes a text of. A request is null once it is done.
 */
struct braze_mpi {
  int version;       /* BRAZE_MPI_VERSION */
  char library[128]; /* what the implementation calls itself */
  int rank, size;
  int local_rank, local_size; /* among the processes that share memory */

  /* Short messages to and from anybody. `send` leaves `data` to MPI until the request is done. */
  int (*send_note)(int rank, const void* data, size_t size, void** request);
  int (*next_note)(int* rank, size_t* size); /* size: 0 if none has come */
  int (*take_note)(int rank, void* data, size_t size);

  /* Bytes, at most 2^31 - 1 at a time. */
  int (*send)(int rank, int tag, const void* data, size_t size, void** request);
  int (*receive)(int rank, int tag, void* data, size_t size, void** request);
  int (*test)(void** request);
  int (*cancel)(void** request); /* of what is received */

  void (*explain)(int code, char* text, size_t size);
  void (*finish)(void); /* ends MPI, if the plugin began it */
  /* What MPI calls when the program ends it, before anything else; nothing if the plugin began it.
   */
  void (*call_at_end)(void (*callback)(void));
};

/* Begins MPI, or joins the one that runs. Other than 0: `error` says why not. */
typedef int braze_mpi_open_function(struct braze_mpi* out, char* error, size_t size);
#define BRAZE_MPI_OPEN "braze_mpi_open"
