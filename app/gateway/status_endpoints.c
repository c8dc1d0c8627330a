/* SPDX-License-Identifier: BSD-3-Clause */
/* Models, health, readiness and metrics. */
#include "status_endpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "kvr_types.h"
#include "version.h"

#define JSON   "application/json"
#define MODELS "/v1/models"

/* Output of models; with `only` the model of that name. */
struct list {
	FILE *out;
	const char *only;
	size_t len;	/* length of `only` */
	unsigned int n; /* number printed */
};

/* Print a model and its pool. */
static void print_model(struct list *l, const char *id, const struct kvr_client_pool *p,
			const char *parent)
{
	char name[600], root[600], of[600] = "null";

	if (l->only != NULL && (l->n > 0 || !h2o_memis(l->only, l->len, id, strlen(id))))
		return;
	if (kvr_json_quote(id, strlen(id), name, sizeof(name)) < 0 ||
	    kvr_json_quote(p->name, strlen(p->name), root, sizeof(root)) < 0 ||
	    (parent != NULL && kvr_json_quote(parent, strlen(parent), of, sizeof(of)) < 0))
		return;
	fprintf(l->out,
		"%s{\"id\":%s,\"object\":\"model\",\"created\":0,\"owned_by\":\"kvroute\",\"root\":%s,\"parent\":%s,\"role\":\"%s\",\"ranks\":%u,\"block_size\":%u%s}",
		l->n++ > 0 ? "," : "", name, root, of, kvr_role_name(p->role), p->ranks,
		p->block_size, p->eagle ? ",\"eagle\":true" : "");
}

static const struct kvr_client_pool *find_pool(const struct kvr_client_pool *pools, uint32_t n,
					       const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(pools[i].name, name) == 0 && pools[i].serves)
			return &pools[i];
	return NULL;
}

static const char *pool_of(const struct gw_options *options, const char *model)
{
	for (uint32_t i = 0; i < options->n_models; i++)
		if (strcmp(options->models[i].name, model) == 0)
			return options->models[i].of;
	return model;
}

/* Print everything that can be named as a model now. */
static void print_models(const struct gw_thread *thread, struct list *l)
{
	const struct gw_router *router = gw_router_pick((struct gw_thread *)(uintptr_t)thread, 0);
	const struct gw_options *options = thread->opt;
	const struct kvr_client_pool *pools = NULL, *p;
	uint32_t n_pools = 0;

	if (router != NULL)
		pools = kvr_client_pools(router->client, &n_pools);
	for (uint32_t i = 0; i < n_pools; i++)
		if (pools[i].serves)
			print_model(l, pools[i].name, &pools[i], NULL);
	for (uint32_t i = 0; i < options->n_models; i++) {
		p = find_pool(pools, n_pools, options->models[i].of);
		if (p != NULL)
			print_model(l, options->models[i].name, p, NULL);
	}
	for (uint32_t i = 0; i < options->n_adapters; i++) {
		p = find_pool(pools, n_pools, pool_of(options, options->adapters[i].of));
		if (p != NULL)
			print_model(l, options->adapters[i].name, p, options->adapters[i].of);
	}
}

static void list_models(struct gw_thread *thread, h2o_req_t *req, FILE *out)
{
	struct list l = {.out = out};

	(void)req;
	fprintf(out, "{\"object\":\"list\",\"data\":[");
	print_models(thread, &l);
	fprintf(out, "]}");
}

/* GET /v1/models/NAME: the name is the rest of the path, including slashes. No output: unknown
 * model. */
static void show_model(struct gw_thread *thread, h2o_req_t *req, FILE *out)
{
	struct list l = {.out = out,
			 .only = req->path_normalized.base + strlen(MODELS) + 1,
			 .len = req->path_normalized.len - strlen(MODELS) - 1};

	print_models(thread, &l);
}

static void print_health(struct gw_thread *thread, h2o_req_t *req, FILE *out)
{
	(void)thread;
	(void)req;
	fprintf(out, "{\"status\":\"ok\"}");
}

/* The next connection may reach any thread. */
static bool all_ready(const struct gw_thread *thread)
{
	uint64_t v[GW_N_COUNTERS];

	kvr_stats_sum(thread->stats, v);
	return v[GW_THREADS_READY] == thread->opt->threads;
}

static void print_ready(struct gw_thread *thread, h2o_req_t *req, FILE *out)
{
	struct list l = {.out = fopen("/dev/null", "we")};
	unsigned int up = 0;

	for (uint32_t i = 0; i < thread->opt->n_routers; i++)
		up += thread->routers[i].up;
	if (l.out != NULL) {
		print_models(thread, &l);
		fclose(l.out);
	}
	if (up == 0 || l.n == 0 || !all_ready(thread) || *thread->stop != 0)
		req->res.status = 503;
	fprintf(out, "{\"status\":\"%s\",\"routers\":%u,\"models\":%u}",
		req->res.status == 503 ? "not ready" : "ready", up, l.n);
}

static void print_metrics(struct gw_thread *thread, h2o_req_t *req, FILE *out)
{
	uint64_t v[GW_N_COUNTERS];
	const uint64_t *all[] = {v};

	(void)req;
	kvr_stats_sum(thread->stats, v);
	kvr_metrics_build("version=\"" KVR_VERSION "\"", out);
	kvr_metrics_process(out);
	kvr_metrics_write(&gw_stats, gw_families, all, NULL, 1, out);
}

static const struct {
	const char *path, *type;
	void (*print)(struct gw_thread *thread, h2o_req_t *req, FILE *out);
} pages[] = {
	{MODELS, JSON, list_models},
	{MODELS "/", JSON, show_model},
	{"/health", JSON, print_health},
	{"/ready", JSON, print_ready},
	{"/metrics", KVR_METRICS_TYPE, print_metrics},
};

/* A path that ends with a slash stands for all paths below. */
static bool is_page(const h2o_req_t *req, const char *path)
{
	const h2o_iovec_t p = req->path_normalized;
	const size_t n = strlen(path);

	return path[n - 1] == '/' ? p.len > n && memcmp(p.base, path, n) == 0
				  : h2o_memis(p.base, p.len, path, n);
}

bool gw_page(struct gw_thread *thread, h2o_req_t *req)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		char *text = NULL;
		size_t len = 0;
		FILE *out;

		if (!is_page(req, pages[i].path))
			continue;
		if (!h2o_memis(req->method.base, req->method.len, H2O_STRLIT("GET")) &&
		    !h2o_memis(req->method.base, req->method.len, H2O_STRLIT("HEAD"))) {
			gw_answer_plain_error(req, GW_NO_METHOD, NULL);
			return true;
		}
		out = open_memstream(&text, &len);
		if (out == NULL) {
			gw_answer_plain_error(req, GW_OUT_OF_MEMORY, NULL);
			return true;
		}
		req->res.status = 200;
		pages[i].print(thread, req, out);
		fclose(out);
		if (len > 0)
			gw_answer_page(req, req->res.status, pages[i].type, text, len);
		else
			gw_answer_plain_error(
				req, gw_router_pick(thread, 0) == NULL ? GW_NO_ROUTER : GW_NO_MODEL,
				NULL);
		free(text);
		return true;
	}
	return false;
}
