/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine answers: its head as a message's head, its content as it comes, and what both say
 * about tokens. */
#include "job.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OUT_MOST   65536u     /* not handed on yet; then curl stops */
#define WHOLE_MOST (4u << 20) /* of an answer that is read for its usage, or its result */
#define EVENT_MOST 16384u     /* of one event of a stream that is read for its usage */

static bool append(char **buf, size_t *len, size_t *cap, const void *data, size_t n)
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

/* The status line: an answer may have several heads, of which those below 200 say nothing. */
static void begin_head(struct app_job *j, const char *line, size_t n)
{
	unsigned int status = 0;
	const char *space = memchr(line, ' ', n);

	if (space != NULL && (size_t)(line + n - space) > 3)
		for (int i = 1; i <= 3 && space[i] >= '0' && space[i] <= '9'; i++)
			status = status * 10 + (unsigned int)(space[i] - '0');
	if (j->head == NULL)
		j->head = malloc(KVR_HTTP_MAX_HEAD);
	j->status = (uint16_t)status;
	j->stream = false;
	if (j->head != NULL)
		kvr_http_put_response(&j->put, j->head, KVR_HTTP_MAX_HEAD, status);
}

static void end_head(struct app_job *j)
{
	const int n = kvr_http_put_end(&j->put);

	if (j->status < 200)
		return;
	if (n < 0 || !append(&j->out, &j->len, &j->cap, j->head, (size_t)n)) {
		j->bad_head = true;
		return;
	}
	free(j->head);
	j->head = NULL;
	j->head_done = true;
	if (j->stream) {
		j->sse_buf = malloc(EVENT_MOST);
		kvr_sse_init(&j->sse, j->sse_buf, j->sse_buf != NULL ? EVENT_MOST : 0);
	}
	if (!j->prefill)
		app_job_dirty(j);
}

static void add_field(struct app_job *j, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n), *value, *end = line + n;

	if (colon == NULL)
		return;
	value = colon + 1;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (kvr_http_is_hop(line, (size_t)(colon - line)))
		return;
	if (colon - line == 12 && strncasecmp(line, "content-type", 12) == 0)
		j->stream = end - value >= 17 && strncasecmp(value, "text/event-stream", 17) == 0;
	kvr_http_put_field(&j->put, line, (size_t)(colon - line), value, (size_t)(end - value));
}

size_t app_job_on_header(char *data, size_t size, size_t count, void *user)
{
	const size_t n = size * count;
	struct app_job *j = user;
	size_t len = n;

	while (len > 0 && (data[len - 1] == '\r' || data[len - 1] == '\n'))
		len--;
	if (j->head_done) /* trailers */
		return n;
	if (len >= 5 && memcmp(data, "HTTP/", 5) == 0)
		begin_head(j, data, len);
	else if (j->head != NULL && len > 0)
		add_field(j, data, len);
	else if (j->head != NULL)
		end_head(j);
	return j->head == NULL && !j->head_done ? 0 : j->bad_head ? 0 : n;
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
 * What is read for its usage at the end, or for the transfer of a prefill. An answer that is too
 * long is not read at all: with a hole in it, it would say something else. @return false: give it
 * up.
 */
static bool add_whole(struct app_job *j, const char *data, size_t n)
{
	if (!j->too_long && j->whole_len + n <= WHOLE_MOST)
		return append(&j->whole, &j->whole_len, &j->whole_cap, data, n);
	j->too_long = true;
	j->whole_len = 0;
	return !j->prefill;
}

size_t app_job_on_content(char *data, size_t size, size_t count, void *user)
{
	const size_t n = size * count;
	struct app_job *j = user;

	if (!j->head_done) /* behind 101: it goes on in another protocol */
		return 0;
	if (!j->prefill && j->len > 0 && j->len + n > OUT_MOST) {
		if (!j->paused)
			kvr_cell_add(&j->app->st.paused, 1);
		j->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (j->stream)
		kvr_sse_add(&j->sse, data, n, on_event, j);
	else if (!add_whole(j, data, n))
		return 0;
	if (!j->prefill) {
		if (!append(&j->out, &j->len, &j->cap, data, n))
			return 0;
		app_job_dirty(j);
	}
	return n;
}
