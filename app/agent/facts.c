/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values that an engine reports, taken from its pages by the rows of kinds.c. Each value is set
 * once, by the first row that provides it.
 */
#include "facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "kvr_json.h"

#define TEXT_MOST 16384u /* maximum bytes of JSON in a string */

void agent_facts_clear(struct agent_facts *facts, enum agent_engine type)
{
	*facts = (struct agent_facts){.kind = type};
}

/* ---- one value ---- */

/* Set a value from the first row that has it. @return false: another row set it. */
static bool take_row(struct agent_facts *facts, unsigned int row, uint32_t number)
{
	const enum agent_value v = agent_rows[row].value;

	if (facts->row[v] != 0 && facts->row[v] <= row + 1)
		return false;
	facts->row[v] = (uint16_t)(row + 1);
	facts->number[v] = number;
	if (facts->kind == AGENT_AUTO && agent_rows[row].kind != AGENT_AUTO)
		facts->kind = agent_rows[row].kind;
	return true;
}

static void refuse_row(struct agent_facts *facts, unsigned int row)
{
	if (facts->bad++ == 0)
		facts->bad_row = (uint16_t)(row + 1);
}

static void read_number(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v)
{
	int64_t n;

	if (v->type == KVR_JSON_NULL)
		return;
	if (kvr_json_i64(v, &n) < 0 || n < -1 || n == 0 || n > agent_rows[row].most)
		refuse_row(facts, row);
	else if (n > 0)
		take_row(facts, row, (uint32_t)n);
}

static bool is_printable(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~')
			return false;
	return true;
}

/* Read a number. @return false: it is null, or invalid. */
static bool get_text(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v,
		     char *buf, size_t size)
{
	const int64_t n = kvr_json_string(v, buf, size);

	if (v->type == KVR_JSON_NULL)
		return false;
	if (n >= 0 && strlen(buf) == (size_t)n && is_printable(buf))
		return true;
	refuse_row(facts, row);
	return false;
}

static void read_text(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v)
{
	const bool topic = agent_rows[row].value == AGENT_V_TOPIC;
	char text[sizeof(facts->topic)];

	if (get_text(facts, row, v, text, topic ? sizeof(facts->topic) : sizeof(facts->model)) &&
	    take_row(facts, row, 0))
		snprintf(topic ? facts->topic : facts->model,
			 topic ? sizeof(facts->topic) : sizeof(facts->model), "%s", text);
}

static void read_kind(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v)
{
	for (unsigned int i = 0; i < AGENT_AUTO; i++) {
		if (!kvr_json_equals(v, agent_kinds[i]))
			continue;
		if (facts->kind == AGENT_AUTO)
			facts->kind = (enum agent_engine)i;
		take_row(facts, row, i);
	}
}

static void read_count(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v)
{
	struct kvr_json_iter it = kvr_json_begin(v);
	struct kvr_json_value name, value, inside;
	uint32_t n = 0;

	if (v->type != KVR_JSON_ARRAY && v->type != KVR_JSON_OBJECT) {
		refuse_row(facts, row);
		return;
	}
	while (kvr_json_next(&it, &name, &value))
		n += agent_rows[row].inside == NULL ||
		     (kvr_json_get(&value, agent_rows[row].inside, &inside) &&
		      inside.type == KVR_JSON_STRING);
	if (n > agent_rows[row].most)
		refuse_row(facts, row);
	else if (n > 0 || agent_rows[row].inside != NULL)
		take_row(facts, row, n);
}

/* ---- endpoints ---- */

typedef char endpoints[AGENT_PROM_RANKS][AGENT_ENDPOINT];

static endpoints *endpoints_of(struct agent_facts *facts, unsigned int row)
{
	return agent_rows[row].value == AGENT_V_REPLAY ? &facts->replay : &facts->events;
}

/* Endpoints of all ranks, derived from rank 0. */
static void take_endpoint(struct agent_facts *facts, unsigned int row, const char *first)
{
	endpoints *list = endpoints_of(facts, row);

	if (!agent_endpoint_valid(first))
		refuse_row(facts, row);
	else if (take_row(facts, row, 0))
		for (uint32_t i = 0; i < AGENT_PROM_RANKS; i++)
			agent_endpoint_of(first, i, (*list)[i], AGENT_ENDPOINT);
}

static void read_endpoint(struct agent_facts *facts, unsigned int row,
			  const struct kvr_json_value *v)
{
	char text[AGENT_ENDPOINT];

	if (get_text(facts, row, v, text, sizeof(text)))
		take_endpoint(facts, row, text);
}

static void read_port(struct agent_facts *facts, unsigned int row,
		      const struct kvr_json_value *page, const struct kvr_json_value *v)
{
	char host[64], text[AGENT_ENDPOINT];
	struct kvr_json_value beside;
	uint64_t port;

	kvr_json_get(page, agent_rows[row].inside, &beside);
	if (v->type == KVR_JSON_NULL)
		return;
	if (kvr_json_u64(v, &port) < 0 || port > agent_rows[row].most) {
		refuse_row(facts, row);
		return;
	}
	if (!get_text(facts, row, &beside, host, sizeof(host)))
		return;
	snprintf(text, sizeof(text), "tcp://%s:%u", host, (unsigned int)port);
	take_endpoint(facts, row, text);
}

struct place {
	uint64_t rank;
	struct kvr_json_value value;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Read members in the order of their ranks. @return their number, or -1: invalid. */
static int get_places(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *v,
		      struct place *place)
{
	struct kvr_json_iter it = kvr_json_begin(v);
	struct kvr_json_value name, value;
	int n = 0;

	while (kvr_json_next(&it, &name, &value)) {
		const struct kvr_json_value digits = {name.p + 1, name.len - 2, KVR_JSON_NUMBER};

		if (v->type != KVR_JSON_OBJECT || n == (int)AGENT_PROM_RANKS ||
		    kvr_json_u64(&digits, &place[n].rank) < 0) {
			refuse_row(facts, row);
			return -1;
		}
		kvr_json_get(&value, agent_rows[row].inside, &place[n++].value);
	}
	qsort(place, (size_t)n, sizeof(*place), compare_places);
	return n;
}

static void read_endpoints(struct agent_facts *facts, unsigned int row,
			   const struct kvr_json_value *v)
{
	struct place place[AGENT_PROM_RANKS];
	const int n = get_places(facts, row, v, place);
	char text[AGENT_PROM_RANKS][AGENT_ENDPOINT] = {0};

	if (n > 0 && agent_rows[row].value == AGENT_V_TOPIC) {
		read_text(facts, row, &place[0].value);
		return;
	}
	for (int i = 0; i < n; i++) {
		if (!get_text(facts, row, &place[i].value, text[i], sizeof(text[i])))
			return;
		if (!agent_endpoint_valid(text[i])) {
			refuse_row(facts, row);
			return;
		}
	}
	if (n > 0 && take_row(facts, row, 0))
		memcpy(*endpoints_of(facts, row), text, sizeof(text));
}

/* ---- pages ---- */

/* The value at a row's path: A.B, or A>B. @return false: there is none. */
static bool find_value(const struct kvr_json_value *page, const char *where, char *text,
		       struct kvr_json_value *v)
{
	const char *inner = strchr(where, '>');
	struct kvr_json_value outer, inside;
	char path[64];
	int64_t n;

	if (inner == NULL)
		return kvr_json_get(page, where, v);
	snprintf(path, sizeof(path), "%.*s", (int)(inner - where), where);
	if (!kvr_json_get(page, path, &outer))
		return false;
	n = kvr_json_string(&outer, text, TEXT_MOST);
	return n >= 0 && kvr_json_parse(text, (size_t)n, &inside, NULL) == 0 &&
	       kvr_json_get(&inside, inner + 1, v);
}

static void read_row(struct agent_facts *facts, unsigned int row, const struct kvr_json_value *page)
{
	char text[TEXT_MOST];
	struct kvr_json_value v;

	if (!find_value(page, agent_rows[row].where, text, &v))
		return;
	switch (agent_rows[row].form) {
	case AGENT_FORM_NUMBER:
	case AGENT_FORM_TOKENS:
		read_number(facts, row, &v);
		break;
	case AGENT_FORM_TEXT:
		read_text(facts, row, &v);
		break;
	case AGENT_FORM_KIND:
		read_kind(facts, row, &v);
		break;
	case AGENT_FORM_MEMBERS:
	case AGENT_FORM_CHILDREN:
		read_count(facts, row, &v);
		break;
	case AGENT_FORM_ENDPOINT:
		read_endpoint(facts, row, &v);
		break;
	case AGENT_FORM_PORT:
		read_port(facts, row, page, &v);
		break;
	case AGENT_FORM_ENDPOINTS:
		read_endpoints(facts, row, &v);
		break;
	default: /* for metrics */
		break;
	}
}

static bool is_ours(const struct agent_facts *facts, const struct agent_row *r)
{
	return facts->kind == AGENT_AUTO || r->kind == AGENT_AUTO || r->kind == facts->kind;
}

int agent_facts_read(struct agent_facts *facts, enum agent_page page, const char *text, size_t len)
{
	struct kvr_json_value root;

	if (kvr_json_parse(text, len, &root, NULL) < 0 || root.type != KVR_JSON_OBJECT)
		return -EBADMSG;
	if (page == AGENT_PAGE_SERVER_OLD)
		page = AGENT_PAGE_SERVER;
	for (unsigned int i = 0; agent_rows[i].where != NULL; i++)
		if (agent_rows[i].page == page && is_ours(facts, &agent_rows[i]))
			read_row(facts, i, &root);
	return 0;
}

void agent_facts_metrics(struct agent_facts *facts, const struct agent_prom *prom)
{
	if (facts->kind == AGENT_AUTO)
		facts->kind = prom->kind;
	for (unsigned int i = 0; agent_rows[i].where != NULL; i++) {
		const struct agent_row *r = &agent_rows[i];
		const uint64_t n = prom->row[r->value] != i + 1	    ? 0
				   : r->value == AGENT_V_BLOCK_SIZE ? prom->block_size
				   : r->value == AGENT_V_BLOCKS	    ? prom->blocks
				   : r->value == AGENT_V_RANKS	    ? prom->engines
								    : 0;

		if (n == 0 || !is_ours(facts, r))
			continue;
		if (n > r->most)
			refuse_row(facts, i);
		else
			take_row(facts, i, (uint32_t)n);
	}
}

/* ---- options ---- */

static const struct {
	const char *option, *form; /* NULL: not an option; option of a number */
} shown[AGENT_V_WAITING] = {
	[AGENT_V_KIND] = {"--type", "type"},
	[AGENT_V_MODEL] = {NULL, "model"},
	[AGENT_V_LENGTH] = {NULL, "length"},
	[AGENT_V_ADAPTERS] = {NULL, "adapters"},
	[AGENT_V_BLOCK_SIZE] = {"--block-size", "block size"},
	[AGENT_V_BLOCKS] = {NULL, "blocks a rank"},
	[AGENT_V_RANKS] = {"--ranks", "ranks"},
	[AGENT_V_EVENTS] = {"--events", "events"},
	[AGENT_V_REPLAY] = {"--replay", "replay"},
	[AGENT_V_TOPIC] = {"--topic", "topic"},
	[AGENT_V_BATCH] = {"--max-num-batched-tokens", "batch budget"},
};

static bool is_given(const struct agent_options *given, enum agent_value value)
{
	switch (value) {
	case AGENT_V_KIND:
		return given->type != AGENT_AUTO;
	case AGENT_V_BLOCK_SIZE:
		return given->block_size != 0;
	case AGENT_V_RANKS:
		return given->ranks != 0;
	case AGENT_V_EVENTS:
		return strcmp(given->events, AGENT_AS_REPORTED) != 0;
	case AGENT_V_REPLAY:
		return strcmp(given->replay, AGENT_AS_REPORTED) != 0;
	case AGENT_V_TOPIC:
		return given->topic[0] != '\0';
	case AGENT_V_BATCH:
		return given->max_num_batched_tokens != 0;
	default:
		return false;
	}
}

/* Path of a page, without its query. */
static int path_len(const char *page)
{
	return (int)strcspn(page, "?");
}

const char *agent_facts_source(const struct agent_facts *facts, const struct agent_options *given,
			       enum agent_value value)
{
	if (is_given(given, value))
		return shown[value].option;
	if (facts->row[value] != 0)
		return agent_pages[agent_rows[facts->row[value] - 1].page];
	/* A row of one kind only was found. */
	return value == AGENT_V_KIND && facts->kind != AGENT_AUTO ? "its answers" : "";
}

void agent_facts_endpoint(const struct agent_facts *facts, const struct agent_options *given,
			  bool replay, uint32_t i, char *buf, size_t len)
{
	const char *text = replay ? given->replay : given->events;
	const char *found = i >= AGENT_PROM_RANKS ? ""
			    : replay		  ? facts->replay[i]
						  : facts->events[i];

	buf[0] = '\0';
	if (is_given(given, replay ? AGENT_V_REPLAY : AGENT_V_EVENTS)) {
		if (text[0] != '\0')
			agent_endpoint_of(text, i, buf, len);
	} else if (found[0] != '\0') {
		agent_endpoint_reach(found, given->engine, buf, len);
	}
}

void agent_facts_apply(const struct agent_facts *facts, const struct agent_options *given,
		       struct agent_options *options)
{
	*options = *given;
	if (given->type == AGENT_AUTO)
		options->type = facts->kind == AGENT_AUTO ? AGENT_VLLM : facts->kind;
	if (given->block_size == 0)
		options->block_size = facts->number[AGENT_V_BLOCK_SIZE];
	if (given->ranks == 0)
		options->ranks = facts->row[AGENT_V_RANKS] != 0 ? facts->number[AGENT_V_RANKS] : 1;
	if (given->topic[0] == '\0')
		snprintf(options->topic, sizeof(options->topic), "%s", facts->topic);
	if (given->max_num_batched_tokens == 0)
		options->max_num_batched_tokens = facts->number[AGENT_V_BATCH];
	agent_facts_endpoint(facts, given, false, 0, options->events, sizeof(options->events));
	agent_facts_endpoint(facts, given, true, 0, options->replay, sizeof(options->replay));
	if (options->events[0] == '\0')
		options->replay[0] = '\0';
}

uint64_t agent_facts_blocks(const struct agent_facts *facts, uint32_t block_size)
{
	const uint16_t row = facts->row[AGENT_V_BLOCKS];
	const bool tokens = row != 0 && agent_rows[row - 1].form == AGENT_FORM_TOKENS;

	return facts->number[AGENT_V_BLOCKS] / (tokens && block_size != 0 ? block_size : 1);
}

static void value_text(const struct agent_facts *facts, const struct agent_options *options,
		       enum agent_value value, char *buf, size_t len)
{
	const char *text = value == AGENT_V_KIND     ? agent_kinds[options->type]
			   : value == AGENT_V_MODEL  ? facts->model
			   : value == AGENT_V_EVENTS ? options->events
			   : value == AGENT_V_REPLAY ? options->replay
			   : value == AGENT_V_TOPIC  ? options->topic
						     : NULL;
	const uint64_t n = value == AGENT_V_BLOCK_SIZE ? options->block_size
			   : value == AGENT_V_BLOCKS
				   ? agent_facts_blocks(facts, options->block_size)
			   : value == AGENT_V_RANKS ? options->ranks
			   : value == AGENT_V_BATCH ? options->max_num_batched_tokens
						    : facts->number[value];

	if (text == NULL)
		snprintf(buf, len, "%llu", (unsigned long long)n);
	else
		snprintf(buf, len, "%s", text[0] != '\0' ? text : "\"\"");
}

void agent_facts_line(const struct agent_facts *facts, const struct agent_options *given, char *buf,
		      size_t len)
{
	struct agent_options o;
	char value[256];
	size_t n = 0;

	agent_facts_apply(facts, given, &o);
	for (enum agent_value v = 0; v < AGENT_V_WAITING && n < len; v++) {
		const char *from = agent_facts_source(facts, given, v);
		const bool usual = v == AGENT_V_KIND || v == AGENT_V_RANKS;
		const bool known = *from != '\0' || usual;

		value_text(facts, &o, v, value, sizeof(value));
		from = *from != '\0' ? from : usual ? "default" : "-";
		n += (size_t)snprintf(buf + n, len - n, "%s%s %s (%.*s)", n != 0 ? ", " : "",
				      shown[v].form, known ? value : "unknown", path_len(from),
				      from);
	}
}
