/* c_abi.c — a program in C on a package: usage c_abi PACKAGE [KEY_THAT_SIGNED_IT OTHER_KEY]. */
#include <stdio.h>
#include <string.h>

#include "functions.h"

#define CHECK(condition)                                                            \
  if (!(condition)) {                                                               \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, braze_last_error()); \
    return 1;                                                                       \
  }

static int released = 0;
static void count_release(void* user) { *(int*)user += 1; }

/* Memory of the program's own as an array. */
static int check_borrowed(const braze_function* scale) {
  static float room[64];
  float* const aligned = room + (16 - (size_t)room / 4 % 16) % 16;
  const int64_t shape[2] = {3, 2}, strides[2] = {1, 3};
  float results[6] = {0};
  braze_memory memory = {sizeof(memory), NULL, BRAZE_F32, 2, NULL, NULL, "cpu", NULL, NULL, 0};
  braze_array *x = NULL, *y = NULL;
  const braze_array* arguments[1];
  int i;
  for (i = 0; i < 6; ++i) aligned[i] = (float)i;
  memory.data = aligned;
  memory.shape = shape;
  memory.release = count_release;
  memory.user = &released;
  CHECK(braze_array_borrow(&memory, &x) == BRAZE_OK);
  CHECK(strcmp(braze_array_device(x), "cpu") == 0 && braze_array_rank(x) == 2);
  arguments[0] = x;
  CHECK(braze_run(scale, arguments, 1, &y, 1) == BRAZE_OK);
  CHECK(braze_array_to_host(y, results, sizeof(results)) == BRAZE_OK);
  for (i = 0; i < 6; ++i) CHECK(results[i] == 2 * aligned[i]);
  CHECK(released == 0);
  braze_array_release(x);
  braze_array_release(y);
  CHECK(released == 1);
  /* What cannot be is released too. */
  memory.strides = strides;
  memory.must_not_copy = 1;
  CHECK(braze_array_borrow(&memory, &x) == BRAZE_INVALID_ARGUMENT && x == NULL);
  CHECK(strcmp(braze_last_error_code(), "foreign-memory") == 0 && released == 2);
  memory.device = "nowhere";
  CHECK(braze_array_borrow(&memory, &x) == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "no-such-device") == 0 && released == 3);
  memory.device = "cpu";
  memory.strides = NULL;
  CHECK(braze_array_borrow(&memory, NULL) == BRAZE_INVALID_ARGUMENT && released == 4);
  memory.size = 8;
  CHECK(braze_array_borrow(&memory, &x) == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "options-size") == 0 && released == 4);
  CHECK(braze_array_from_dlpack(NULL, &x) == BRAZE_INVALID_ARGUMENT);
  return 0;
}

static int check_names(const braze_package* package, const braze_function* update) {
  CHECK(braze_package_functions(package) == 4);
  CHECK(strcmp(braze_package_function_name(package, 0), "scale") == 0);
  CHECK(strcmp(braze_package_function_name(package, 3), "update") == 0);
  CHECK(braze_package_function_name(package, 4) == NULL);
  CHECK(strcmp(braze_function_name(update), "update") == 0);
  /* Its third input has a weight. */
  CHECK(braze_function_inputs(update) == 2);
  CHECK(strcmp(braze_function_input_name(update, 1), "g") == 0);
  CHECK(strcmp(braze_function_input_type(update, 1), "f32[n]") == 0);
  CHECK(braze_function_input_name(update, 2) == NULL);
  CHECK(strcmp(braze_function_output_name(update, 0), "next") == 0);
  CHECK(strcmp(braze_function_output_name(update, 1), "") == 0);
  CHECK(strcmp(braze_function_output_type(update, 1), "f32[n]") == 0);
  CHECK(braze_function_output_type(update, 2) == NULL);
  CHECK(braze_function_output_replaces(update, 0) == 0);
  CHECK(braze_function_output_replaces(update, 1) == -1);
  CHECK(braze_function_output_replaces(update, 2) == -1);
  CHECK(braze_function_output_replaces(NULL, 0) == -1);
  return 0;
}

static int check_devices(void) {
  const float x[2] = {3, 4};
  float y[2] = {0};
  const int64_t shape[1] = {2};
  braze_array *here = NULL, *there = NULL;
  size_t i, cpus = 0;
  CHECK(braze_device_name(0) == NULL); /* nobody asked how many */
  for (i = 0; i < braze_devices(); ++i) cpus += strcmp(braze_device_name(i), "cpu") == 0;
  CHECK(cpus == 1 && braze_device_name(i) == NULL);
  CHECK(strcmp(braze_default_device(), "cpu") == 0);
  CHECK(braze_array_from_host(BRAZE_F32, 1, shape, x, "cpu:1", &here) == BRAZE_OK);
  CHECK(braze_array_to_device(here, "cpu", &there) == BRAZE_OK);
  CHECK(strcmp(braze_array_device(there), "cpu") == 0);
  CHECK(braze_array_wait(there) == BRAZE_OK && braze_synchronize("cpu") == BRAZE_OK);
  CHECK(braze_array_to_host(there, y, sizeof(y)) == BRAZE_OK && y[0] == 3 && y[1] == 4);
  braze_array_release(here);
  braze_array_release(there);
  CHECK(braze_array_to_device(NULL, "cpu", &there) == BRAZE_INVALID_ARGUMENT);
  CHECK(braze_array_wait(NULL) == BRAZE_INVALID_ARGUMENT);
  CHECK(braze_synchronize("nowhere") == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "no-such-device") == 0);
  return 0;
}

static int check_streams(const braze_function* scale) {
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
  braze_stream* stream = NULL;
  CHECK(braze_stream_leave() == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "no-stream") == 0);
  CHECK(braze_stream_of_host("cpu", NULL, &stream) == BRAZE_UNSUPPORTED && stream == NULL);
  CHECK(braze_stream_new("cpu", &stream) == BRAZE_OK);
  CHECK(braze_stream_native(stream) == NULL);
  braze_stream_release(stream);
  CHECK(braze_stream_current("cpu", &stream) == BRAZE_OK);
  CHECK(braze_stream_enter(stream) == BRAZE_OK);
  CHECK(scale_run(scale, 3, x, y) == BRAZE_OK && y[5] == 12);
  CHECK(braze_stream_leave() == BRAZE_OK);
  CHECK(braze_stream_synchronize(stream) == BRAZE_OK);
  braze_stream_release(stream);
  return 0;
}

static int logged = 0;
static void count_lines(void* user, braze_log_level level, const char* text) {
  *(int*)user += level == BRAZE_LOG_WARNING && strstr(text, "aligned") != NULL;
}

/* What was set before anything else; an unaligned array is copied, and the log tells. */
static int check_config(void) {
  static float room[64];
  float* const aligned = room + (16 - (size_t)room / 4 % 16) % 16;
  const int64_t shape[1] = {4};
  braze_memory memory = {sizeof(memory), NULL, BRAZE_F32, 1, NULL, NULL, "cpu", NULL, NULL, 0};
  braze_config again = {0};
  braze_array* x = NULL;
  memory.data = aligned + 1;
  memory.shape = shape;
  CHECK(braze_array_borrow(&memory, &x) == BRAZE_OK && logged == 1);
  braze_array_release(x);
  again.size = sizeof(again);
  CHECK(braze_configure(&again) == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "configured-late") == 0);
  return 0;
}

int main(int argc, char** argv) {
  braze_config config = {0};
  braze_package* package = NULL;
  braze_package_options options = {sizeof(options), NULL, 0, NULL};
  braze_function *scale = NULL, *join = NULL, *names = NULL, *update = NULL;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0}, z[15] = {0}, w[2] = {7, 8};
  const int64_t extent = 6;
  braze_array* array = NULL;
  int i;
  CHECK(argc == 2 || argc == 4);
  CHECK(strcmp(braze_last_error_code(), "") == 0);
  CHECK(braze_configure(&config) == BRAZE_INVALID_ARGUMENT); /* its size is 0 */
  CHECK(strcmp(braze_last_error_code(), "options-size") == 0);
  config.size = sizeof(config);
  config.threads = -1;
  CHECK(braze_configure(&config) == BRAZE_INVALID_ARGUMENT);
  CHECK(strcmp(braze_last_error_code(), "bad-setting") == 0);
  config.threads = 1;
  config.log = count_lines;
  config.log_user = &logged;
  /* An older program has fewer members: those beyond its size do not count. */
  config.cache = "wrong";
  config.default_device = "nowhere";
  for (config.size = 16; config.size <= sizeof(config); config.size += 8) {
    const int has_device = config.size > offsetof(braze_config, default_device);
    CHECK(braze_configure(&config) == BRAZE_INVALID_ARGUMENT);
    CHECK(strcmp(braze_last_error_code(), has_device ? "no-such-device" : "bad-setting") == 0);
  }
  config.size = sizeof(config);
  config.cache = NULL;
  config.default_device = "cpu";
  CHECK(braze_configure(&config) == BRAZE_OK);

  CHECK(braze_package_load("/none.bzp", NULL, &package) == BRAZE_NOT_FOUND);
  CHECK(package == NULL && strstr(braze_last_error(), "/none.bzp"));
  CHECK(braze_package_load(NULL, NULL, &package) == BRAZE_INVALID_ARGUMENT);
  if (argc == 4) {
    options.trust_keys = argv[3];
    CHECK(braze_package_load(argv[1], &options, &package) == BRAZE_INVALID_ARGUMENT);
    CHECK(strstr(braze_last_error(), "file-signature"));
    options.trust_keys = ":";
    CHECK(braze_package_load(argv[1], &options, &package) == BRAZE_INVALID_ARGUMENT);
    options.trust_keys = argv[2];
  }
  /* A size that leaves the keys out, or cuts them in two, must not drop the demand. */
  for (i = 0; i < (int)sizeof(options) + 9; ++i) {
    options.size = (size_t)i;
    if (options.size == sizeof(options)) continue;
    CHECK(braze_package_load(argv[1], &options, &package) == BRAZE_INVALID_ARGUMENT);
    CHECK(strstr(braze_last_error(), "set size to sizeof(braze_package_options)"));
  }
  options.size = sizeof(options);
  CHECK(braze_package_load(argv[1], &options, &package) == BRAZE_OK);

  CHECK(braze_function_load(package, "none", "cpu", &scale) == BRAZE_INVALID_ARGUMENT);
  CHECK(braze_function_load(package, "scale", "cuda:77", &scale) == BRAZE_INVALID_ARGUMENT);
  CHECK(scale_load(package, "cpu", &scale) == BRAZE_OK);
  CHECK(join_load(package, "cpu", &join) == BRAZE_OK);
  CHECK(braze__load(package, "cpu", &names) == BRAZE_OK);
  CHECK(update_load(package, "cpu", &update) == BRAZE_OK);
  CHECK(check_names(package, update) == 0);
  braze_package_release(package); /* functions keep what they need */
  CHECK(check_borrowed(scale) == 0 && check_streams(scale) == 0 && check_config() == 0);
  CHECK(check_devices() == 0);
  CHECK(braze_function_inputs(scale) == 1 && braze_function_outputs(scale) == 1);
  CHECK(strcmp(braze_function_device(scale), "cpu") == 0);

  CHECK(scale_run(scale, 3, x, y) == BRAZE_OK);
  for (i = 0; i < 6; ++i) CHECK(y[i] == 2 * x[i]);
  CHECK(scale_run(scale, 1, x, y) == BRAZE_OK);
  CHECK(scale_run(scale, 99, x, y) == BRAZE_INVALID_ARGUMENT); /* n is at most 8 */
  CHECK(strstr(braze_last_error(), "8"));

  /* x [n + 1], y [2*n] to z [3*n + 1] */
  CHECK(join_run(join, 2, x, x, z) == BRAZE_OK);
  for (i = 0; i < 3; ++i) CHECK(z[i] == x[i]);
  for (i = 0; i < 4; ++i) CHECK(z[3 + i] == x[i]);

  /* its inputs have names that the header itself needs */
  CHECK(braze__run(names, 3, x + 3, x, y) == BRAZE_OK);
  for (i = 0; i < 3; ++i) CHECK(y[i] == 3);

  /* rates are 0.5, three of them, by the weights; the result may take the memory of what it updates
   */
  CHECK(update_run(update, 2, w, x, w, y) == BRAZE_OK);
  CHECK(w[0] == 5.5f && w[1] == 5 && y[0] == 1.5f && y[1] == 3);

  CHECK(braze_run(scale, NULL, 0, NULL, 0) == BRAZE_INVALID_ARGUMENT);
  {
    /* after a failure there are no results, whatever was in their place */
    braze_array* results[1];
    memset(results, 1, sizeof results);
    CHECK(braze_run(scale, NULL, 0, results, 1) == BRAZE_INVALID_ARGUMENT && results[0] == NULL);
  }
  CHECK(scale_run(NULL, 3, x, y) == BRAZE_INVALID_ARGUMENT);
  CHECK(strstr(braze_last_error(), "null-handle") &&
        strstr(braze_last_error(), "function is NULL"));
  CHECK(braze_function_device(NULL) == NULL);
  CHECK(braze_function_inputs(NULL) == 0 && braze_function_outputs(NULL) == 0);
  CHECK(braze_array_rank(NULL) == 0 && braze_array_bytes(NULL) == 0);
  CHECK(braze_array_shape(NULL) == NULL && braze_array_dtype(NULL) == BRAZE_BOOL);
  CHECK(strstr(braze_last_error(), "array is NULL"));
  CHECK(braze_array_from_host(BRAZE_F32, SIZE_MAX / 16, &extent, x, "cpu", &array) ==
        BRAZE_INVALID_ARGUMENT);
  CHECK(strstr(braze_last_error(), "64"));
  CHECK(braze_array_from_host(BRAZE_F32, 1, &extent, x, "cpu", NULL) == BRAZE_INVALID_ARGUMENT);
  {
    /* of bool, any byte but 0 is true, which is 1 */
    const unsigned char given[4] = {0, 1, 2, 255};
    unsigned char got[4] = {9, 9, 9, 9};
    const int64_t four = 4;
    braze_array* flags = NULL;
    CHECK(braze_array_from_host(BRAZE_BOOL, 1, &four, given, "cpu", &flags) == BRAZE_OK);
    CHECK(braze_array_to_host(flags, got, sizeof got) == BRAZE_OK);
    CHECK(got[0] == 0 && got[1] == 1 && got[2] == 1 && got[3] == 1);
    braze_array_release(flags);
  }
  braze_function_release(scale);
  braze_function_release(join);
  braze_function_release(names);
  braze_function_release(update);
  braze_function_release(NULL);
  printf("%s\n", braze_version());
  return 0;
}
