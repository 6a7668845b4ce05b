// The site: README.md, README.zh-CN.md and the pages under docs/, as they are. `make docs` builds it.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join, posix, resolve } from 'node:path'
import { defineConfig, type DefaultTheme, type MarkdownOptions } from 'vitepress'

const root = resolve(import.meta.dirname, '../..')
const repository = 'https://' + /^module (\S+)/.exec(read('go.mod'))![1]
const sections = [
  { folder: 'start', title: 'Start', zh: '入门' },
  { folder: 'howto', title: 'How to', zh: '操作指南' },
  { folder: 'reference', title: 'Reference', zh: '参考' },
  { folder: 'why', title: 'Why believe it', zh: '为什么可信' },
].filter(({ folder }) => existsSync(join(root, 'docs', folder)))

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

// The first page in each language is a README, which another file includes.
const readmes: Record<string, string> = { 'docs/index.md': 'README.md', 'docs/zh/index.md': 'README.zh-CN.md' }
const addresses: Record<string, string> = { 'README.md': '/', 'README.zh-CN.md': '/zh/', 'docs/README.md': '/README' }
for (const { folder } of sections) {
  for (const name of pages(folder)) {
    for (const page of [`${folder}/${name}`, `zh/${folder}/${name}`]) {
      if (existsSync(join(root, 'docs', page))) addresses[`docs/${page}`] = '/' + page.replace(/\.md$/, '')
    }
  }
}

// The English pages of a folder, in the order in which docs/README.md names them, the others at the end.
function pages(folder: string): string[] {
  const contents = read('docs/README.md')
  const place = (name: string) => (contents + `(${folder}/${name})`).indexOf(`(${folder}/${name})`)
  const names = readdirSync(join(root, 'docs', folder)).filter((name) => name.endsWith('.md'))
  return names.sort((a, b) => place(a) - place(b))
}

function title(page: string): string {
  return /^# (.+)$/m.exec(read(page))![1].replace(/`/g, '')
}

// The sidebar has the pages of each folder; a page's first heading is its title. The Chinese one
// has the Chinese pages of a folder first, then the others in English.
function sidebar(locale: 'title' | 'zh'): DefaultTheme.SidebarItem[] {
  return sections.map((section) => {
    const all = pages(section.folder).map((name) => {
      const translated = `docs/zh/${section.folder}/${name}`
      return locale === 'zh' && addresses[translated] ? translated : `docs/${section.folder}/${name}`
    })
    const chinese = (page: string) => Number(page.startsWith('docs/zh/'))
    all.sort((a, b) => chinese(b) - chinese(a))
    return { text: section[locale], items: all.map((page) => ({ text: title(page), link: addresses[page] })) }
  })
}

// A link to a page leads to the page, one to any other file or folder to the repository.
function address(source: string, href: string): string {
  if (/^([a-z]+:|\/|#|$)/.test(href)) return href
  const [path, hash = ''] = href.split(/(?=#)/)
  const target = posix.join(posix.dirname(source), path)
  if (addresses[target]) return addresses[target] + hash
  if (!existsSync(join(root, target))) throw new Error(`${source}: ${href} leads nowhere`)
  return `${repository}/${statSync(join(root, target)).isDirectory() ? 'tree' : 'blob'}/HEAD/${target}${hash}`
}

// A picture of a README is named from where the README lies.
function picture(page: string, source: string, src: string): string {
  if (/^([a-z]+:|\/)/.test(src)) return src
  const path = posix.relative(posix.dirname(page), posix.join(posix.dirname(source), src))
  return path.startsWith('.') ? path : './' + path
}

const markdown: MarkdownOptions = {
  // GitHub's anchors, so that a link to a heading works in both places.
  anchor: { slugify: (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-') },
  config(md) {
    md.core.ruler.push('addresses', ({ tokens, env }) => {
      const page = posix.relative(root, env.path)
      const source = readmes[page] ?? page
      for (const token of tokens.flatMap((t) => [t, ...(t.children ?? [])])) {
        if (token.type === 'link_open') token.attrSet('href', address(source, token.attrGet('href')!))
        if (token.type === 'image') token.attrSet('src', picture(page, source, token.attrGet('src')!))
        if (token.type.startsWith('html_')) {
          token.content = token.content
            .replace(/(<a\s[^>]*?href=")([^"]*)/g, (_, tag, href) => tag + address(source, href))
            .replace(/(<(?:img|source)\s[^>]*?src(?:set)?=")([^"]*)/g, (_, tag, src) => tag + picture(page, source, src))
        }
      }
    })
    // The text of a link that is a file's name says little where there is no file.
    md.core.ruler.push('titles', ({ tokens }) => {
      const named = Object.fromEntries(Object.entries(addresses).map(([page, at]) => [at, page]))
      for (const { children } of tokens) {
        children?.forEach((token, i) => {
          const page = named[token.type === 'link_open' ? token.attrGet('href')! : '']
          if (page && page.endsWith(children[i + 1].content)) children[i + 1].content = title(page)
        })
      }
    })
    // A long name, and in a table each one, may break after a mark or before a capital, and nowhere else.
    md.core.ruler.push('joints', ({ tokens }) => {
      let inTable = false
      for (const { type, children } of tokens) {
        if (type === 'table_open' || type === 'table_close') inTable = type === 'table_open'
        if (inTable) children?.forEach((token) => (token.meta = { ...token.meta, inTable }))
      }
    })
    for (const rule of ['text', 'code_inline']) {
      const render = md.renderer.rules[rule]!
      md.renderer.rules[rule] = (tokens, i, ...rest) => {
        const html = render(tokens, i, ...rest)
        if (!tokens[i].meta?.inTable && !(rule === 'code_inline' && tokens[i].content.length > 24)) return html
        return html.replace(/<[^>]*>|&\w+;|[^\s<&]{12,}/g, (word) =>
          /^[<&]/.test(word) ? word : word.replace(/[_.,:=/|(-](?=\w)|[a-z](?=[A-Z])/g, '$&<wbr>'),
        )
      }
    }
    // The end of a line within Chinese text is no blank.
    const wide = /[\p{Script=Han}\u3000-\u303f\uff00-\uffef]/u
    const softbreak = md.renderer.rules.softbreak!
    md.renderer.rules.softbreak = (tokens, i, ...rest) => {
      const [before, after] = [tokens[i - 1]?.content.slice(-1), tokens[i + 1]?.content.slice(0, 1)]
      return wide.test(before ?? '') && wide.test(after || '字') ? '' : softbreak(tokens, i, ...rest)
    }
    const fence = md.renderer.rules.fence!
    md.renderer.rules.code_block = fence // an indented block scrolls as one with a fence does
    md.renderer.rules.fence = (tokens, i, ...rest) =>
      tokens[i].info.trim() === 'mermaid'
        ? `<Diagram text="${encodeURIComponent(tokens[i].content)}" />`
        : fence(tokens, i, ...rest)
  },
}

// DOCS_VERSION is what is built, DOCS_BASE the path that it is served at, DOCS_SITE the address
// below which each version has its folder; without it a version leads to its pages in the repository.
const { DOCS_VERSION: version = 'main', DOCS_BASE: base = '/', DOCS_SITE: site } = process.env
function versions(all: string): DefaultTheme.NavItem {
  const tags = execFileSync('git', ['tag', '--list', 'v*', '--sort=-version:refname'], { cwd: root, encoding: 'utf8' })
  const names = ['main', ...tags.split('\n').filter(Boolean)]
  return {
    text: version,
    items: [
      ...names.map((name) => ({ text: name, link: site ? `${site}/${name}/` : `${repository}/tree/${name}/docs` })),
      { text: all, link: `${repository}/blob/HEAD/CHANGELOG.md` },
    ],
  }
}

function nav(locale: 'title' | 'zh'): DefaultTheme.NavItem[] {
  return sidebar(locale).map((section, i) => ({
    text: section.text!,
    link: section.items![0].link!,
    activeMatch: `^(/zh)?/${sections[i].folder}/`,
  }))
}

// Words between blanks and punctuation. Chinese has neither between words, and dictionaries differ from browser to
// browser: it is cut into each two characters that follow each other, and a single one finds those that begin with it.
function words(text: string): string[] {
  return text.split(/[\n\r\p{Z}\p{P}]+/u).flatMap((word) =>
    (word.match(/\p{Script=Han}+|\P{Script=Han}+/gu) ?? [word]).flatMap((run) => {
      const characters = Array.from(run)
      if (!/\p{Script=Han}/u.test(run) || characters.length < 2) return [run]
      return characters.slice(1).map((second, i) => characters[i] + second)
    }),
  )
}

export default defineConfig({
  title: 'Holdfast',
  description: 'One refund, however many times it is asked for, with the database you already run.',
  base,
  outDir: '../bin/site',
  cacheDir: '../bin/site-cache',
  metaChunk: true,
  markdown,
  locales: {
    root: { label: 'English', lang: 'en' },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      link: '/zh/',
      themeConfig: {
        i18nRouting: true, // each Chinese page has an English one
        nav: [...nav('zh'), versions('变更')],
        sidebar: sidebar('zh'),
        outline: { label: '本页' },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '语言',
      },
    },
  },
  themeConfig: {
    nav: [...nav('title'), versions('Changes')],
    sidebar: sidebar('title'),
    socialLinks: [{ icon: 'github', link: repository }],
    i18nRouting: false, // not each has a Chinese one; those that do link to it
    search: {
      provider: 'local',
      options: {
        miniSearch: { options: { tokenize: words } },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有结果：',
                resetButtonTitle: '清除',
                footer: { selectText: '打开', navigateText: '选择', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
  },
  vite: {
    plugins: [
      {
        name: 'vue-of-the-site',
        enforce: 'pre',
        // The pages are not below the folder that has node_modules.
        resolveId(id, importer) {
          if (/^vue($|\/)/.test(id) && importer?.endsWith('.md')) return this.resolve(id, import.meta.filename)
        },
      },
    ],
    build: { chunkSizeWarningLimit: 2000 }, // mermaid, which only a page with a diagram loads
  },
})
