-- The app's tables. Names are those of the service that the queue belongs to. Safe to run again.

CREATE TABLE IF NOT EXISTS public.workspaces (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  name text NOT NULL UNIQUE
);

CREATE TABLE IF NOT EXISTS public.workspace_members (
  workspace_id uuid NOT NULL REFERENCES public.workspaces (id) ON DELETE CASCADE,
  member regrole NOT NULL,  -- follows a role that is renamed; a role that is dropped and created anew is another one
  PRIMARY KEY (member, workspace_id)
);

CREATE TABLE IF NOT EXISTS public.workspace_threads_accounts (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  workspace_id uuid NOT NULL REFERENCES public.workspaces (id) ON DELETE CASCADE,
  name text NOT NULL,
  UNIQUE (workspace_id, name)
);

CREATE TABLE IF NOT EXISTS public.workspace_threads_posts (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  workspace_threads_account_id uuid NOT NULL REFERENCES public.workspace_threads_accounts (id) ON DELETE CASCADE,
  threads_id text NOT NULL,                -- the id of the post in its network
  text text NOT NULL,
  revision integer NOT NULL DEFAULT 1,     -- plus 1 whenever the text changes
  synced_at timestamptz NOT NULL DEFAULT now(),
  tags text[],                             -- NULL: not tagged yet
  tagged_at timestamptz,
  tagged_by text,                          -- the model
  tagged_revision integer,
  tagged_for text,                         -- the job and its run; a rescued job that finds its own name is done
  UNIQUE (workspace_threads_account_id, threads_id)
);

-- What each call of the model cost, one row per call and account. It outlives the account.
CREATE TABLE IF NOT EXISTS public.llm_usage_logs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  call_id uuid NOT NULL,
  workspace_id uuid REFERENCES public.workspaces (id) ON DELETE SET NULL,
  workspace_threads_account_id uuid REFERENCES public.workspace_threads_accounts (id) ON DELETE SET NULL,
  model text NOT NULL,
  posts integer NOT NULL,
  input_tokens bigint,                     -- NULL: the endpoint did not say
  output_tokens bigint,
  cost numeric(20, 10),
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (call_id, workspace_threads_account_id)  -- a call whose commit was not confirmed is written again
);
CREATE INDEX IF NOT EXISTS llm_usage_logs_account ON public.llm_usage_logs (workspace_threads_account_id);
CREATE INDEX IF NOT EXISTS llm_usage_logs_workspace ON public.llm_usage_logs (workspace_id);

-- With the rights of the caller: a member reads its own rows of workspace_members, and no others.
CREATE OR REPLACE FUNCTION public.is_workspace_member(workspace uuid) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN EXISTS (
  SELECT FROM public.workspace_members AS m WHERE m.workspace_id = workspace AND m.member = to_regrole(quote_ident(current_user))
);
