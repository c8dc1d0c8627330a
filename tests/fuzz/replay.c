/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a fuzz target over files and folders of inputs, with any compiler. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define INPUT_MAX (1u << 20)

static unsigned int n_inputs;

/* The copy is exactly as long as the input, so that the sanitizers detect a read beyond its end. */
static int run_file(const char *path)
{
	static uint8_t buf[INPUT_MAX];
	FILE *f = fopen(path, "rb");
	uint8_t *copy;
	size_t n;

	if (f == NULL) {
		perror(path);
		return 1;
	}
	n = fread(buf, 1, sizeof(buf), f);
	fclose(f);
	copy = malloc(n);
	if (copy == NULL && n > 0)
		return 1;
	for (size_t i = 0; i < n; i++)
		copy[i] = buf[i];
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
	n_inputs++;
	return 0;
}

static int run_path(const char *path)
{
	struct dirent *e;
	struct stat st;
	int bad = 0;
	DIR *d;

	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return run_file(path);
	d = opendir(path);
	if (d == NULL)
		return 1;
	while (bad == 0 && (e = readdir(d)) != NULL) {
		char file[4096];

		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		bad = run_file(file);
	}
	closedir(d);
	return bad;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (run_path(argv[i]) != 0)
			return 1;
	printf("%u inputs\n", n_inputs);
	return n_inputs == 0;
}
