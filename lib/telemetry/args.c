/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of commands, and the arithmetic of the rate limit. No state. */
#include "kvr_telemetry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kvr_telemetry_args(struct kvr_telemetry_args *args, const char *params)
{
	const size_t n = strlen(params);
	char *s = args->text, *word;

	args->n = 0;
	if (n >= sizeof(args->text))
		return -E2BIG;
	memcpy(args->text, params, n + 1);
	if (args->text[strspn(args->text, " ")] == '\0')
		return 0;
	while ((word = strsep(&s, ",")) != NULL) {
		size_t len;

		if (args->n == KVR_TELEMETRY_MAX_ARGS)
			return -E2BIG;
		word += strspn(word, " ");
		len = strlen(word);
		while (len > 0 && word[len - 1] == ' ')
			word[--len] = '\0';
		args->v[args->n++] = word;
	}
	return 0;
}

uint64_t kvr_telemetry_pace(uint64_t *last_ns, uint64_t now_ns)
{
	const uint64_t saved = KVR_TELEMETRY_BURST * KVR_TELEMETRY_EACH_NS;
	const uint64_t from = now_ns > saved ? now_ns - saved : 0;

	*last_ns = (*last_ns > from ? *last_ns : from) + KVR_TELEMETRY_EACH_NS;
	return *last_ns > now_ns ? *last_ns - now_ns : 0;
}

const char *kvr_telemetry_arg(const struct kvr_telemetry_args *args, unsigned int i)
{
	return i < args->n && args->v[i][0] != '\0' ? args->v[i] : NULL;
}

int kvr_telemetry_arg_u64(const struct kvr_telemetry_args *args, unsigned int i, uint64_t min,
			  uint64_t max, uint64_t *out)
{
	const char *s = kvr_telemetry_arg(args, i);
	unsigned long long v;
	char *end;

	if (s == NULL)
		return -ENOENT;
	if (*s < '0' || *s > '9') /* strtoull() accepts signs */
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, s[0] == '0' && (s[1] == 'x' || s[1] == 'X') ? 16 : 10);
	if (*end != '\0')
		return -EINVAL;
	if (errno == ERANGE || v < min || v > max)
		return -ERANGE;
	*out = v;
	return 0;
}

bool kvr_telemetry_arg_has(const struct kvr_telemetry_args *args, unsigned int first,
			   const char *flag)
{
	for (unsigned int i = first; i < args->n; i++)
		if (strcmp(args->v[i], flag) == 0)
			return true;
	return false;
}
