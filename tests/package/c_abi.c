/* c_abi.c — a program in C on a package: usage c_abi PACKAGE [KEY_THAT_SIGNED_IT OTHER_KEY]. */
#include <stdio.h>
#include <string.h>

#include "functions.h"

#define CHECK(condition)                                                            \
  if (!(condition)) {                                                               \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, braze_last_error()); \
    return 1;                                                                       \
  }

int main(int argc, char** argv) {
  braze_package* package = NULL;
  braze_package_options options = {sizeof(options), NULL, 0, NULL};
  braze_function *scale = NULL, *join = NULL, *names = NULL, *update = NULL;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0}, z[15] = {0}, w[2] = {7, 8};
  const int64_t extent = 6;
  braze_array* array = NULL;
  int i;
  CHECK(argc == 2 || argc == 4);

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
  braze_package_release(package); /* functions keep what they need */
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
