/* SPDX-License-Identifier: BSD-3-Clause */
/* Compression of transfer results. */
#include "result_pack.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

int64_t agent_result_pack(const char *result, size_t len, char *out, size_t room)
{
	uLongf n = room;
	int rc;

	if (len <= room)
		return 0;
	rc = compress2((Bytef *)out, &n, (const Bytef *)result, len, 6);
	return rc == Z_OK ? (int64_t)n : rc == Z_BUF_ERROR ? -EMSGSIZE : -ENOMEM;
}

int64_t agent_result_unpack(const char *result, size_t len, char **out)
{
	uLongf n = AGENT_RESULT_MAX;
	char *larger;
	int rc;

	*out = NULL;
	if (len == 0 || result[0] != 0x78)
		return 0;
	*out = malloc(n);
	if (*out == NULL)
		return -ENOMEM;
	rc = uncompress((Bytef *)*out, &n, (const Bytef *)result, len);
	if (rc != Z_OK || n == 0) {
		free(*out);
		*out = NULL;
		return rc == Z_MEM_ERROR ? -ENOMEM : -EPROTO;
	}
	larger = realloc(*out, n); /* shrink the allocation */
	if (larger != NULL)
		*out = larger;
	return (int64_t)n;
}
