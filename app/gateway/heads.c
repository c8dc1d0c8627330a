/* SPDX-License-Identifier: BSD-3-Clause */
#include "heads.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct phr_header;

typedef int parse_fn(const char *buf, size_t len, const char **method, size_t *method_len,
		     const char **path, size_t *path_len, int *minor_version,
		     struct phr_header *headers, size_t *num_headers, size_t last_len);

parse_fn phr_parse_request; /* libh2o's header of it is not installed */

const char gw_bad_head[] = "/";

static parse_fn *theirs(void)
{
	static __thread parse_fn *fn;
	void *found;

	if (fn != NULL)
		return fn;
	found = dlsym(RTLD_NEXT, "phr_parse_request");
	if (found == NULL)
		abort(); /* libh2o is linked: it cannot be */
	memcpy(&fn, &found, sizeof(fn));
	return fn;
}

int phr_parse_request(const char *buf, size_t len, const char **method, size_t *method_len,
		      const char **path, size_t *path_len, int *minor_version,
		      struct phr_header *headers, size_t *num_headers, size_t last_len)
{
	const int n = theirs()(buf, len, method, method_len, path, path_len, minor_version, headers,
			       num_headers, last_len);

	/* The beginning of HTTP/2 is none of HTTP/1, and libh2o knows what to do. */
	if (n != -1 || (len >= 4 && memcmp(buf, "PRI ", 4) == 0))
		return n;
	*method = "GET";
	*method_len = 3;
	*path = gw_bad_head;
	*path_len = 1;
	*minor_version = 0; /* its connection ends with the answer */
	*num_headers = 0;
	return (int)len;
}
