/* SPDX-License-Identifier: BSD-3-Clause */
/* Response of the engine: converts its head, collects its content, and extracts token counts. */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OUT_MOST   65536u     /* bytes not forwarded yet; beyond it reading stops */
#define WHOLE_MOST (4u << 20) /* limit for answers parsed at their end: usage, or transfer result  \
			       */
#define EVENT_USUAL 16384u    /* buffer for one event of a stream ... */
#define EVENT_MOST                                                                                 \
	(1u << 20) /* ... and its limit: an event may contain a whole answer with its request */

static bool append_bytes(char **buf, size_t *len, size_t *cap, const void *data, size_t n)
{
	if (*len + n > *cap) {
		const size_t size = 2 * (*len + n);
		char *larger = realloc(*buf, size);

		if (larger == NULL)
			return false;
		*buf = larger;
		*cap = size;
	}
	memcpy(*buf + *len, data, n);
	*len += n;
	return true;
}

static bool is_events(const struct kvr_http_field *f)
{
	return kvr_http_equals(f->name, "content-type") && f->value.len >= 17 &&
	       strncasecmp(f->value.p, "text/event-stream", 17) == 0;
}

static char *larger_event(void *arg, uint32_t *size)
{
	struct app_job *j = arg;
	const uint32_t room = *size < EVENT_MOST / 2 ? 2 * *size : EVENT_MOST;
	char *larger = *size <= EVENT_MOST ? realloc(j->sse_buf, room) : NULL;

	if (larger == NULL)
		return NULL;
	j->sse_buf = larger;
	*size = room;
	return larger;
}

int app_job_on_head(void *job, const struct kvr_http_head *h)
{
	struct app_job *j = job;
	char head[KVR_HTTP_MAX_HEAD];
	struct kvr_http_put put;
	int n;

	j->status = h->status;
	kvr_http_put_response(&put, head, sizeof(head), h->status);
	for (unsigned int i = 0; i < h->n_fields; i++) {
		const struct kvr_http_field *f = &h->fields[i];

		j->stream |= is_events(f);
		j->retry_after |= kvr_http_equals(f->name, "retry-after");
		if (!kvr_http_is_hop(f->name.p, f->name.len))
			kvr_http_put_field(&put, f->name.p, f->name.len, f->value.p, f->value.len);
	}
	n = kvr_http_put_end(&put);
	if (n < 0)
		return -ECANCELED;
	if (!append_bytes(&j->out, &j->len, &j->cap, head, (size_t)n))
		return -ENOMEM;
	if (j->stream) {
		j->sse_buf = malloc(EVENT_USUAL);
		kvr_sse_init(&j->sse, j->sse_buf, j->sse_buf != NULL ? EVENT_USUAL : 0);
		kvr_sse_grows(&j->sse, larger_event, j);
	}
	if (!j->prefill)
		app_job_hold_head(j);
	return 0;
}

static void on_event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct app_job *j = arg;

	if (cut)
		j->usage.bad_events++;
	else
		agent_usage_event(&j->usage, data, len);
}

/*
 * Collect content that is parsed at its end: usage, or the transfer result of a prefill. An answer
 * above the limit is not parsed, because a part of it could be misread.
 */
static int add_whole(struct app_job *j, const char *data, size_t n)
{
	if (!j->too_long && j->whole_len + n <= WHOLE_MOST)
		return append_bytes(&j->whole, &j->whole_len, &j->whole_cap, data, n) ? 0 : -ENOMEM;
	j->too_long = true;
	j->whole_len = 0;
	return j->prefill ? -EOVERFLOW : 0;
}

bool app_job_accepts(void *job)
{
	const struct app_job *j = job;

	return j->prefill || j->len <= OUT_MOST;
}

int app_job_on_content(void *job, const char *data, size_t len)
{
	struct app_job *j = job;
	int rc = 0;

	if (j->stream)
		kvr_sse_add(&j->sse, data, len, on_event, j);
	else
		rc = add_whole(j, data, len);
	j->content |= len > 0;
	if (rc < 0 || j->prefill)
		return rc;
	if (!append_bytes(&j->out, &j->len, &j->cap, data, len))
		return -ENOMEM;
	app_job_mark_dirty(j);
	return 0;
}
