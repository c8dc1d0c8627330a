/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the seeds of fuzz_wire: every sample frame behind the byte that chooses its receiver. */
#include "samples.h"

#include <stdio.h>

static struct sample samples[SAMPLES_MAX];

int main(int argc, char **argv)
{
	const uint32_t n = samples_make(samples);

	if (argc != 2)
		return 2;
	for (uint32_t i = 0; i < n; i++) {
		const struct sample *s = &samples[i];
		const uint8_t role = s->receiver == KVR_ROLE_BIT_CLIENT	 ? 0
				     : s->receiver == KVR_ROLE_BIT_AGENT ? 1
									 : 2;
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s/seed-%s", argv[1], s->name);
		f = fopen(path, "wb");
		if (f == NULL || fputc(role, f) == EOF ||
		    fwrite(s->frame[0], s->len[0], 1, f) != 1 || fclose(f) != 0)
			return 1;
	}
	return 0;
}
