// OpenCode has no hooks for commands, so this plugin passes what its agents do to `holdlog hook`, as Claude Code does by
// itself. It fails open: if the command fails, the tool runs. `holdlog init` writes it to .opencode/plugins/holdlog.js.
// One default export serves both majors: OpenCode 1 (1.18.29 and later) calls `server`, OpenCode 2 calls `setup`.
import { spawn } from "node:child_process"

const COMMAND = "holdlog"
const MILLISECONDS = 5000
const EDITS = new Set(["edit", "write", "multiedit", "patch", "apply_patch"])
const SHELLS = new Set(["bash", "shell"])
const READERS = new Set(["read", "glob", "grep", "list", "lsp", "task", "subagent", "skill", "question", "execute"])

/** Whether a call of a tool may change files: `holdlog hook` reads its input. */
const mayChange = (tool, input) =>
  EDITS.has(tool) || SHELLS.has(tool) || tool.startsWith("holdlog_") || (!READERS.has(tool) && namesFile(input))

const namesFile = (input) => Object.keys(input ?? {}).some((key) => /path|file|source|patch|diff|edits/i.test(key))

/** What both majors share: the calls of `holdlog hook`. Each session is an agent. */
const connect = (directory) => {
  const started = new Set()
  const children = new Set()
  const outputs = new Map()

  /** Run a hook. Resolves to what it prints, or {} if it fails. */
  const hook = (event, sessionID, given = {}) =>
    new Promise((resolve) => {
      const call = { client: "opencode", session_id: sessionID, agent_id: sessionID, cwd: directory, ...given }
      const child = spawn(COMMAND, ["hook", event], { cwd: directory, stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(() => child.kill("SIGKILL"), MILLISECONDS)
      let text = ""
      child.stdout.on("data", (part) => (text += part))
      child.on("error", () => {
        clearTimeout(timer)
        resolve({})
      })
      child.on("close", () => {
        clearTimeout(timer)
        try {
          resolve(text ? JSON.parse(text) : {})
        } catch {
          resolve({})
        }
      })
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(call))
    })

  // Calls inside OpenCode 2's tool `execute` share one id.
  const key = (id, tool, input) => JSON.stringify([id, tool, input])
  const describe = (id, tool, input) => ({ tool_name: tool, tool_input: input, tool_use_id: key(id, tool, input).slice(0, 200) })

  return {
    started,
    children,
    /** The text for the context of an agent that gets a prompt. */
    prompt: async (sessionID, given) => {
      const event = started.has(sessionID) ? "prompt" : "start"
      started.add(sessionID)
      const prompt = typeof given === "string" ? given.slice(0, 400) : undefined
      return (await hook(event, sessionID, { prompt })).context
    },
    /** Throws to keep the tool from running. */
    before: async (id, tool, sessionID, input) => {
      if (!mayChange(tool, input)) return
      const output = await hook("pre-edit", sessionID, describe(id, tool, input))
      if (output.decision === "deny") throw new Error(output.reason)
      if (output.warning) outputs.set(key(id, tool, input), output)
    },
    /** The text to add to the output of the tool. */
    after: async (id, tool, sessionID, input) => {
      const call = key(id, tool, input)
      const { warning } = outputs.get(call) ?? {}
      outputs.delete(call)
      const event = tool === "read" ? "read" : mayChange(tool, input) ? "post-edit" : null
      const output = event ? await hook(event, sessionID, describe(id, tool, input)) : {}
      return [warning, output.warning].filter(Boolean).join("\n")
    },
    turnEnd: (sessionID) => hook(children.has(sessionID) ? "subagent-end" : "turn-end", sessionID),
    sessionEnd: (sessionID) => hook("session-end", sessionID),
  }
}

const server = async ({ directory }) => {
  const holdlog = connect(directory)
  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const text = await holdlog.prompt(sessionID, parts.find((it) => it.type === "text" && !it.synthetic)?.text)
      if (!text) return
      const id = `prt_${Date.now().toString(16)}holdlog`
      parts.push({ id, sessionID, messageID: message.id, type: "text", text, synthetic: true })
    },
    "tool.execute.before": ({ tool, sessionID, callID }, { args }) => holdlog.before(callID, tool, sessionID, args),
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      const text = await holdlog.after(callID, tool, sessionID, args)
      if (!text) return
      if (Array.isArray(output.content)) output.content.push({ type: "text", text })
      else output.output = `${output.output}\n${text}`
    },
    event: async ({ event: { type, properties } }) => {
      if (type === "session.created" && properties.info.parentID) holdlog.children.add(properties.info.id)
      if (type === "session.idle") await holdlog.turnEnd(properties.sessionID)
      if (type === "session.deleted") await holdlog.sessionEnd(properties.info.id)
    },
    dispose: async () => {
      await Promise.all([...holdlog.started].map(holdlog.sessionEnd))
    },
  }
}

const TURN_ENDS = new Set(["succeeded", "failed", "interrupted"].map((it) => `session.execution.${it}`))

const setup = async (ctx) => {
  const holdlog = connect(ctx.location?.directory ?? process.cwd())
  const contexts = new Map()
  const stop = new AbortController()

  await ctx.tool.hook("execute.before", ({ id, callID, tool, sessionID, input }) =>
    holdlog.before(id ?? callID, tool, sessionID, input),
  )
  await ctx.tool.hook("execute.after", async (event) => {
    const { id, callID, tool, sessionID, input } = event
    const text = await holdlog.after(id ?? callID, tool, sessionID, input)
    if (!text || event.status === "error" || !event.result) return
    const { content } = event.result
    const parts = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? [])
    event.result = { ...event.result, content: [...parts, { type: "text", text }] }
  })
  await ctx.session.hook("prompt", async ({ sessionID, prompt }) => {
    const isStart = !holdlog.started.has(sessionID)
    if (isStart) await noteParent(sessionID)
    const text = await holdlog.prompt(sessionID, prompt?.text ?? prompt)
    const [start] = contexts.get(sessionID) ?? []
    contexts.set(sessionID, isStart ? [text] : [start, text])
  })
  // The host builds each request from the stored messages again, so each of them gets the text again.
  await ctx.session.hook("context", ({ sessionID, system }) => {
    const text = (contexts.get(sessionID) ?? []).filter(Boolean).join("\n")
    if (text) system.push({ type: "text", text })
  })

  const noteParent = async (sessionID) => {
    const session = await ctx.session.get({ sessionID }).catch(() => undefined)
    if (session?.parentID) holdlog.children.add(sessionID)
  }
  const follow = async () => {
    for await (const { type, data } of ctx.event.subscribe({ signal: stop.signal })) {
      if (!holdlog.started.has(data?.sessionID)) continue // of another folder
      if (TURN_ENDS.has(type)) await holdlog.turnEnd(data.sessionID)
      if (type === "session.deleted") await holdlog.sessionEnd(data.sessionID)
    }
  }
  follow().catch(() => {})
  return async () => {
    stop.abort()
    // A plugin is also replaced while its agents work: what they have changed stays claimed until its lease ends.
    await Promise.all([...holdlog.started].map(holdlog.turnEnd))
  }
}

export default { id: "holdlog", server, setup }
