/* braze_mpi.c: Braze's plugin for one implementation of MPI (braze_mpi.h). */
#include "braze_mpi.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Comm notes = MPI_COMM_NULL, parcels = MPI_COMM_NULL;
static int began = 0;
static void (*at_end)(void) = NULL;

/* When MPI ends, it first deletes the attributes of MPI_COMM_SELF, and so calls this. */
static int delete_attribute(MPI_Comm comm, int key, void* value, void* state) {
  (void)comm, (void)key, (void)value, (void)state;
  if (at_end) at_end();
  return MPI_SUCCESS;
}

static void call_at_end(void (*callback)(void)) {
  int key = MPI_KEYVAL_INVALID;
  if (began) return;
  at_end = callback;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &key, NULL) == MPI_SUCCESS)
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

static int made(int code, MPI_Request* request, void** out) {
  if (code != MPI_SUCCESS) {
    free(request);
    request = NULL;
  }
  *out = request;
  return code;
}

static int send_to(MPI_Comm comm, int rank, int tag, const void* data, size_t size, void** out) {
  MPI_Request* const request = malloc(sizeof(MPI_Request));
  if (!request) return MPI_ERR_NO_MEM;
  return made(MPI_Isend(data, (int)size, MPI_BYTE, rank, tag, comm, request), request, out);
}

static int send_note(int rank, const void* data, size_t size, void** request) {
  return send_to(notes, rank, 0, data, size, request);
}

static int next_note(int* rank, size_t* size) {
  MPI_Status status;
  int here = 0, count = 0;
  *size = 0;
  int code = MPI_Iprobe(MPI_ANY_SOURCE, 0, notes, &here, &status);
  if (code != MPI_SUCCESS || !here) return code;
  code = MPI_Get_count(&status, MPI_BYTE, &count);
  *rank = status.MPI_SOURCE;
  *size = (size_t)count;
  return code;
}

static int take_note(int rank, void* data, size_t size) {
  return MPI_Recv(data, (int)size, MPI_BYTE, rank, 0, notes, MPI_STATUS_IGNORE);
}

static int send_bytes(int rank, int tag, const void* data, size_t size, void** request) {
  return send_to(parcels, rank, tag, data, size, request);
}

static int receive(int rank, int tag, void* data, size_t size, void** out) {
  MPI_Request* const request = malloc(sizeof(MPI_Request));
  if (!request) return MPI_ERR_NO_MEM;
  return made(MPI_Irecv(data, (int)size, MPI_BYTE, rank, tag, parcels, request), request, out);
}

static int test(void** request) {
  int done = 0;
  const int code = MPI_Test(*request, &done, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && !done) return code;
  free(*request);
  *request = NULL;
  return code;
}

static int cancel(void** request) {
  const int code = MPI_Cancel(*request);
  return code == MPI_SUCCESS ? test(request) : code;
}

static void explain(int code, char* text, size_t size) {
  char all[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (MPI_Error_string(code, all, &length) != MPI_SUCCESS) length = 0;
  all[length] = 0;
  snprintf(text, size, "%s", all);
}

static void finish(void) {
  int over = 0;
  if (MPI_Finalized(&over) != MPI_SUCCESS || over) return;
  if (began) MPI_Finalize();
}

__attribute__((visibility("default"))) int braze_mpi_open(struct braze_mpi* out, char* error,
                                                          size_t size) {
  int runs = 0, over = 0, level = 0;
  MPI_Initialized(&runs);
  MPI_Finalized(&over);
  if (over) {
    snprintf(error, size, "MPI was ended already in this process");
    return 1;
  }
  if (runs)
    MPI_Query_thread(&level);
  else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
    snprintf(error, size, "MPI does not begin");
    return 1;
  }
  began = !runs;
  if (level < MPI_THREAD_SERIALIZED) {
    snprintf(error, size,
             "MPI was begun for one thread; begin it by MPI_Init_thread with MPI_THREAD_SERIALIZED "
             "or MPI_THREAD_MULTIPLE, or leave it to Braze");
    return 1;
  }
  MPI_Comm host;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &notes);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &parcels);
  if (code == MPI_SUCCESS)
    code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  if (code != MPI_SUCCESS) {
    explain(code, error, size);
    return 1;
  }
  MPI_Comm_set_errhandler(notes, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(parcels, MPI_ERRORS_RETURN);
  memset(out, 0, sizeof *out);
  out->version = BRAZE_MPI_VERSION;
  char library[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
  int length = 0;
  MPI_Get_library_version(library, &length);
  library[strcspn(library, "\n,")] = 0;
  snprintf(out->library, sizeof out->library, "%.*s", (int)sizeof out->library - 1, library);
  MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &out->size);
  MPI_Comm_rank(host, &out->local_rank);
  MPI_Comm_size(host, &out->local_size);
  MPI_Comm_free(&host);
  out->send_note = send_note;
  out->next_note = next_note;
  out->take_note = take_note;
  out->send = send_bytes;
  out->receive = receive;
  out->test = test;
  out->cancel = cancel;
  out->explain = explain;
  out->finish = finish;
  out->call_at_end = call_at_end;
  return 0;
}
