/* SPDX-License-Identifier: MIT */
/*
 * main() for a fuzz target where there is no libFuzzer: runs it over the files named as arguments
 * and over every file of the folders named, so that a corpus is an ordinary test.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#include <fcntl.h>

#define INPUT_MAX (16u * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static unsigned replay(const char *path)
{
	struct dirent *e;
	unsigned ran = 0;
	size_t n;
	char *text;
	DIR *d = opendir(path);

	if (!d) {
		must(fd_read_file(AT_FDCWD, path, INPUT_MAX, &text, &n) == 0);
		/* An exact copy, so that a sanitizer sees a read past its end. */
		uint8_t *exact = malloc(n ? n : 1);

		must(exact);
		memcpy(exact, text, n);
		free(text);
		LLVMFuzzerTestOneInput(exact, n);
		free(exact);
		return 1;
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		char *file = str_printf("%s/%s", path, e->d_name);

		must(file);
		ran += replay(file);
		free(file);
	}
	closedir(d);
	return ran;
}

int main(int argc, char **argv)
{
	unsigned ran = 0;

	for (int i = 1; i < argc; i++)
		ran += replay(argv[i]);
	printf("%u inputs\n", ran);
	return ran ? 0 : 1;
}
