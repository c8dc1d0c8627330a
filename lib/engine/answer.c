/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An answer is relayed, stripped or folded. All streams pass kvr_sse for counts and errors, except
 * stripped ones: these are cut into events here, because bytes outside of changed events stay.
 */
#include "kvr_engine_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buffer_pvt.h"

#define MAX_WAITING 65536u     /* bytes not taken; then no more are read */
#define MAX_WHOLE   (4u << 20) /* of an answer that is read for its usage, or its result */
#define FIRST_EVENT 16384u     /* memory for one event of a stream ... */
#define MAX_EVENT   (1u << 20) /* ... which grows to this, unless the stream is folded */
#define MAX_HELD    16384u     /* of a stream whose first event is not known, or is an error */

void kvr_engine_answer_init(struct kvr_engine_answer *answer, const struct kvr_engine_plan *plan,
			    size_t max_bytes)
{
	*answer = (struct kvr_engine_answer){.kind = plan->kind,
					     .api = plan->api,
					     .form = plan->form,
					     .prefill = plan->prefill,
					     .content_is_text = plan->content_is_text,
					     .drop_total = plan->drop_total,
					     .drop_running = plan->drop_running,
					     .max_bytes = max_bytes};
}

void kvr_engine_answer_fini(struct kvr_engine_answer *answer)
{
	kvr_engine__free_buffer(&answer->out);
	kvr_engine__free_buffer(&answer->whole);
	kvr_engine__free_buffer(&answer->head);
	kvr_engine__free_buffer(&answer->event);
	free(answer->sse_memory);
	answer->sse_memory = NULL;
	kvr_engine_fold_destroy(answer->fold);
	answer->fold = NULL;
}

/* Fields that describe a stream, not its folded answer. */
static bool is_of_stream(const struct kvr_http_field *f)
{
	return kvr_http_equals(f->name, "content-type") ||
	       kvr_http_equals(f->name, "cache-control") ||
	       kvr_http_equals(f->name, "x-accel-buffering");
}

static bool is_events(const struct kvr_http_field *f)
{
	static const char type[] = "text/event-stream";

	return kvr_http_equals(f->name, "content-type") && f->value.len >= sizeof(type) - 1 &&
	       strncasecmp(f->value.p, type, sizeof(type) - 1) == 0;
}

static char *grow_event(void *arg, uint32_t *size)
{
	struct kvr_engine_answer *answer = arg;
	const size_t max = answer->fold != NULL && answer->max_bytes < UINT32_MAX / 2
				   ? answer->max_bytes
				   : MAX_EVENT;
	const size_t room = *size < max / 2 ? 2 * (size_t)*size : max;
	char *larger = *size <= max ? realloc(answer->sse_memory, room) : NULL;

	if (larger == NULL)
		return NULL;
	answer->sse_memory = larger;
	*size = (uint32_t)room;
	return larger;
}

static int begin_stream(struct kvr_engine_answer *answer)
{
	answer->sse_memory = malloc(FIRST_EVENT);
	if (answer->sse_memory == NULL)
		return -ENOMEM;
	kvr_sse_init(&answer->sse, answer->sse_memory, FIRST_EVENT);
	kvr_sse_grows(&answer->sse, grow_event, answer);
	if (answer->form != KVR_ENGINE_FOLD)
		return 0;
	answer->fold = kvr_engine_fold_create(
		&(struct kvr_engine_fold_conf){.kind = answer->kind,
					       .api = answer->api,
					       .content_is_text = answer->content_is_text,
					       .max_bytes = answer->max_bytes});
	return answer->fold != NULL ? 0 : -ENOMEM;
}

int kvr_engine_answer_head(struct kvr_engine_answer *answer, const struct kvr_http_head *head)
{
	char text[KVR_HTTP_MAX_HEAD];
	struct kvr_http_put put;
	bool folded;
	int n;

	answer->status = head->status;
	for (unsigned int i = 0; i < head->n_fields; i++) {
		answer->stream |= is_events(&head->fields[i]);
		answer->retry_after |= kvr_http_equals(head->fields[i].name, "retry-after");
	}
	folded = answer->stream && answer->form == KVR_ENGINE_FOLD;
	if (!answer->stream)
		answer->form = KVR_ENGINE_RELAY; /* an error, or an engine without streams */
	kvr_http_put_response(&put, text, sizeof(text), head->status);
	for (unsigned int i = 0; i < head->n_fields; i++) {
		const struct kvr_http_field *f = &head->fields[i];

		if (!kvr_http_is_hop(f->name.p, f->name.len) && !(folded && is_of_stream(f)))
			kvr_http_put_field(&put, f->name.p, f->name.len, f->value.p, f->value.len);
	}
	if (folded)
		kvr_http_put_text(&put, "content-type", "application/json");
	n = kvr_http_put_end(&put);
	if (n < 0)
		return -ECANCELED;
	if (!kvr_engine__append_bytes(folded ? &answer->head : &answer->out, text, (size_t)n))
		return -ENOMEM;
	return answer->stream ? begin_stream(answer) : 0;
}

/* ---- streams ---- */

static void add_event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct kvr_engine_answer *answer = arg;

	if (cut)
		answer->usage.bad_events++;
	else
		kvr_engine_count_event(&answer->usage, data, len);
	if (answer->fold != NULL)
		kvr_engine_fold_add(answer->fold, data, cut ? 0 : len);
}

/* Length of the first event of @p n bytes, with the empty line that ends it; 0: incomplete. */
static size_t find_event_end(const char *p, size_t n)
{
	const char *at = p, *end = p + n;

	while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		at++;
		if (at < end && *at == '\n')
			return (size_t)(at + 1 - p);
		if (end - at >= 2 && at[0] == '\r' && at[1] == '\n')
			return (size_t)(at + 2 - p);
	}
	return 0;
}

/* The JSON object of an event that is one line of data. */
static bool parse_event(const char *event, size_t len, struct kvr_json_value *root)
{
	static const char field[] = "data:";
	const size_t n = sizeof(field) - 1;

	while (len > 0 && (event[len - 1] == '\n' || event[len - 1] == '\r'))
		len--;
	return len > n && memcmp(event, field, n) == 0 && memchr(event, '\n', len) == NULL &&
	       kvr_json_parse(event + n, len - n, root, NULL) == 0 && root->type == KVR_JSON_OBJECT;
}

/* Write a chunk without its usage. vLLM has no such member then, SGLang has null. */
static int put_stripped(struct kvr_engine_answer *answer, const struct kvr_json_value *root)
{
	const bool null = answer->kind == KVR_ENGINE_SGLANG;
	const struct kvr_json_edit edit = {"usage", null ? "null" : NULL, null ? 4 : 0};
	const size_t size = kvr_json_edit_bound(root, &edit, 1);
	char *text = malloc(size);
	int64_t n = text != NULL ? kvr_json_edit(root, &edit, 1, text, size) : -ENOMEM;

	if (n >= 0 && (!kvr_engine__append_text(&answer->out, "data: ") ||
		       !kvr_engine__append_bytes(&answer->out, text, (size_t)n) ||
		       !kvr_engine__append_text(&answer->out, "\n\n")))
		n = -ENOMEM;
	free(text);
	return n < 0 ? -ENOMEM : 0;
}

static int strip_event(struct kvr_engine_answer *answer, const char *event, size_t len)
{
	struct kvr_json_value root, choices, usage;

	kvr_sse_add(&answer->sse, event, len, add_event, answer);
	if (parse_event(event, len, &root) && kvr_json_get(&root, "usage", &usage) &&
	    usage.type == KVR_JSON_OBJECT && kvr_json_get(&root, "choices", &choices) &&
	    choices.type == KVR_JSON_ARRAY) {
		struct kvr_json_iter it = kvr_json_begin(&choices);
		struct kvr_json_value name, choice;
		const bool total = !kvr_json_next(&it, &name, &choice);

		if (total && answer->drop_total)
			return 0;
		if (!total && answer->drop_running)
			return put_stripped(answer, &root);
	}
	return kvr_engine__append_bytes(&answer->out, event, len) ? 0 : -ENOMEM;
}

/* Cut the stream into events. One that is too long, and all after it, stay as they are. */
static int strip_stream(struct kvr_engine_answer *answer, const char *data, size_t len)
{
	struct kvr_engine_buffer *held = &answer->event;
	size_t at = 0, n;
	int rc = 0;

	if (!kvr_engine__append_bytes(held, data, len))
		return -ENOMEM;
	if (held->len == 0)
		return 0;
	while (rc == 0 && (n = find_event_end(held->p + at, held->len - at)) > 0) {
		rc = strip_event(answer, held->p + at, n);
		at += n;
	}
	memmove(held->p, held->p + at, held->len - at);
	held->len -= at;
	if (rc < 0 || held->len <= MAX_EVENT)
		return rc;
	answer->form = KVR_ENGINE_RELAY;
	kvr_sse_add(&answer->sse, held->p, held->len, add_event, answer);
	rc = kvr_engine__append_bytes(&answer->out, held->p, held->len) ? 0 : -ENOMEM;
	kvr_engine__free_buffer(held);
	return rc;
}

/* ---- content ---- */

/* An answer that is read at its end. One that is too long is not read at all: with a gap it could
 * report something else. */
static int add_whole(struct kvr_engine_answer *answer, const char *data, size_t len)
{
	if (!answer->too_long && answer->whole.len + len <= MAX_WHOLE)
		return kvr_engine__append_bytes(&answer->whole, data, len) ? 0 : -ENOMEM;
	answer->too_long = true;
	answer->whole.len = 0;
	return answer->prefill ? -EOVERFLOW : 0;
}

int kvr_engine_answer_content(struct kvr_engine_answer *answer, const char *data, size_t len)
{
	int rc;

	answer->content |= len > 0;
	if (answer->stream && answer->form == KVR_ENGINE_STRIP)
		return strip_stream(answer, data, len);
	if (answer->stream)
		kvr_sse_add(&answer->sse, data, len, add_event, answer);
	rc = answer->stream ? 0 : add_whole(answer, data, len);
	if (rc < 0 || answer->prefill || answer->fold != NULL)
		return rc;
	return kvr_engine__append_bytes(&answer->out, data, len) ? 0 : -ENOMEM;
}

/* The folded answer: its head has the status that only the stream shows. */
static int put_folded(struct kvr_engine_answer *answer)
{
	static const char line[] = "HTTP/1.1 ";
	struct kvr_http_put put;
	char *text, first[128];
	uint16_t status;
	const int64_t n = kvr_engine_fold_finish(answer->fold, &text, &status);
	const char *fields = memchr(answer->head.p, '\n', answer->head.len);
	int first_len, rc = 0;

	if (n < 0)
		return (int)n;
	answer->status = status != 200 ? status : answer->status;
	kvr_http_put_response(&put, first, sizeof(first), answer->status);
	first_len = kvr_http_put_end(&put) - 2; /* without the empty line */
	if (fields == NULL || first_len < (int)sizeof(line) ||
	    !kvr_engine__append_bytes(&answer->out, first, (size_t)first_len) ||
	    !kvr_engine__append_bytes(&answer->out, fields + 1,
				      answer->head.len - (size_t)(fields + 1 - answer->head.p)) ||
	    !kvr_engine__append_bytes(&answer->out, text, (size_t)n) ||
	    (status >= 400 && !kvr_engine__append_bytes(&answer->whole, text, (size_t)n)))
		rc = -ENOMEM;
	free(text);
	return rc;
}

int kvr_engine_answer_finish(struct kvr_engine_answer *answer)
{
	answer->finished = true;
	if (answer->fold != NULL)
		return put_folded(answer);
	if (answer->event.len > 0) { /* an event that the engine has not ended */
		const bool kept =
			kvr_engine__append_bytes(&answer->out, answer->event.p, answer->event.len);

		answer->event.len = 0;
		return kept ? 0 : -ENOMEM;
	}
	if (!answer->stream && !answer->prefill && answer->whole.len > 0)
		kvr_engine_count_answer(&answer->usage, answer->whole.p, answer->whole.len, NULL);
	return 0;
}

void kvr_engine_answer_stop(struct kvr_engine_answer *answer)
{
	answer->finished = true;
}

/* ---- outside ---- */

bool kvr_engine_answer_admits(const struct kvr_engine_answer *answer)
{
	return answer->prefill || answer->fold != NULL ||
	       answer->out.len - answer->taken <= MAX_WAITING;
}

static bool is_held(const struct kvr_engine_answer *answer)
{
	return answer->stream && !answer->begun && !answer->finished && answer->content &&
	       answer->out.len - answer->taken <= MAX_HELD &&
	       (answer->usage.events == 0 || answer->usage.error != 0);
}

size_t kvr_engine_answer_ready(const struct kvr_engine_answer *answer, const char **data)
{
	*data = answer->out.len > 0 ? answer->out.p + answer->taken : "";
	return answer->prefill || is_held(answer) ? 0 : answer->out.len - answer->taken;
}

void kvr_engine_answer_take(struct kvr_engine_answer *answer, size_t len)
{
	answer->taken += len;
	answer->begun |= answer->content && len > 0;
	if (answer->taken < answer->out.len)
		return;
	answer->taken = 0;
	answer->out.len = 0;
}

enum kvr_engine_verdict kvr_engine_answer_judge(const struct kvr_engine_answer *answer)
{
	if (answer->status < 400 && answer->stream && answer->usage.events == 0)
		return KVR_ENGINE_FAILED; /* an empty stream */
	return kvr_engine_judge(answer->status < 400 ? answer->usage.error : answer->status,
				answer->retry_after);
}

size_t kvr_engine_answer_whole(const struct kvr_engine_answer *answer, const char **data)
{
	*data = answer->whole.p != NULL ? answer->whole.p : "";
	return answer->whole.len;
}

size_t kvr_engine_answer_error(const struct kvr_engine_answer *answer, char *buf, size_t size)
{
	const char *data;
	const size_t len = kvr_engine_answer_whole(answer, &data);

	return kvr_engine_error_text(data, len, buf, size);
}
