// OpenCode has no hooks for commands, so this plugin passes what its agents do to `holdlog hook`, as Claude Code does by
// itself. It fails open: if the command fails, the tool runs. `holdlog init` writes it to .opencode/plugins/holdlog.js.
import { spawn } from "node:child_process"

const COMMAND = "holdlog"
const MILLISECONDS = 5000
const FILE_TOOLS = new Set(["edit", "write", "multiedit", "patch", "apply_patch"])

export const Holdlog = async ({ directory }) => {
  const started = new Set()
  const children = new Set()
  const warnings = new Map()

  /** Run a hook. Resolves to what it prints, or {} if it fails. Each session is an agent. */
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

  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const { context } = await hook(started.has(sessionID) ? "prompt" : "start", sessionID)
      started.add(sessionID)
      if (!context) return
      const id = `prt_${Date.now().toString(16)}holdlog`
      parts.push({ id, sessionID, messageID: message.id, type: "text", text: context, synthetic: true })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      if (!FILE_TOOLS.has(tool) && tool !== "bash" && !tool.startsWith("holdlog_")) return
      const output = await hook("pre-edit", sessionID, { tool_name: tool, tool_input: args })
      if (output.decision === "deny") throw new Error(output.reason)
      if (output.warning) warnings.set(callID, output.warning)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      if (FILE_TOOLS.has(tool) || tool === "read")
        await hook(tool === "read" ? "read" : "post-edit", sessionID, { tool_name: tool, tool_input: args })
      if (warnings.has(callID)) output.output = `${output.output}\n${warnings.get(callID)}`
      warnings.delete(callID)
    },
    event: async ({ event: { type, properties } }) => {
      if (type === "session.created" && properties.info.parentID) children.add(properties.info.id)
      if (type === "session.idle")
        await hook(children.has(properties.sessionID) ? "subagent-end" : "turn-end", properties.sessionID)
      if (type === "session.deleted") await hook("session-end", properties.info.id)
    },
    dispose: async () => {
      await Promise.all([...started].map((sessionID) => hook("session-end", sessionID)))
    },
  }
}
